"""One family of errors; each message says where, what, why and what to do."""


class ShardwrightError(Exception):
    """Base of every error that Shardwright raises on purpose."""


class InputError(ShardwrightError):
    """A file, module, function or argument that cannot be read as a program."""


class LayoutError(ShardwrightError):
    """A layout that does not fit its mesh, its shape or its use."""


class RuleError(ShardwrightError):
    """A sharding rule that is malformed or does not fit its operation."""


class PlanError(ShardwrightError):
    """A plan that cannot be made or carried out as asked."""


class CheckSizeError(PlanError):
    """A schedule too large for the exact check."""


class VerificationError(ShardwrightError):
    """A check of a schedule or of a partitioned program that failed."""
