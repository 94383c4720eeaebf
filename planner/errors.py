"""Errors of the planner.

InvalidInput
* CqlSyntaxError        the text is not CQL
* UnsupportedCql        a construct that CQL does not support
* UnknownStream         FROM names no stream
* UnknownColumn         no stream has the column, or the name before the dot is unknown
* AmbiguousColumn       both streams have the column
* UnknownFunction       no scalar function has the name
* TypeMismatch          an operator or function does not take these types
* NoWindow              a stream without a window
* InvalidWindow         zero, negative, too long, or given twice
* NoEquiKey             no condition compares the two streams
* KeyTypeMismatch       key columns of types that cannot be compared exactly
* InvalidOutput         result columns without a usable name
* UnknownStrategy       no strategy has the name
* InvalidProbe          no way to search slices has the name, or it does not suit the family
* InvalidChain          boundaries that do not form a chain for the queries
* UnknownBoundary       a slice is named by a boundary that does not exist
* NoSharedChain         a family without a single chain to split or merge
* NotRewritable         a part of a query cannot be replaced alone
* UnknownFamily         no family of queries has that id or key
* UnknownStatistic      a statistic is about a stream or filter that does not exist
InternalError
* InvalidPlan           a plan breaks an invariant

An error in a CQL text is raised with ``at``: a syntax node, a token or offsets. The public functions that
take the text replace it by a location (``planner.sql.dialect.locate``).
"""

from __future__ import annotations

from catalog.errors import InternalError, InvalidInput


class CqlSyntaxError(InvalidInput):
    """The text is not CQL."""

    code = "cql-syntax-error"


class UnsupportedCql(InvalidInput):
    """CQL does not support a construct of the text."""

    code = "unsupported-cql"


class UnknownStream(InvalidInput):
    """FROM names no registered stream."""

    code = "unknown-stream"


class UnknownColumn(InvalidInput):
    """The stream has no such column, or the name before the dot is unknown."""

    code = "unknown-column"


class AmbiguousColumn(InvalidInput):
    """Both streams have a column with that name."""

    code = "ambiguous-column"


class UnknownFunction(InvalidInput):
    """No scalar function has that name."""

    code = "unknown-function"


class TypeMismatch(InvalidInput):
    """An operator or function does not take values of these types."""

    code = "type-mismatch"


class NoWindow(InvalidInput):
    """A stream of the query has no window."""

    code = "no-window"


class InvalidWindow(InvalidInput):
    """A window that is zero, negative, too long or given twice, or that no pair can satisfy."""

    code = "invalid-window"


class NoEquiKey(InvalidInput):
    """No condition compares a column of one stream with a column of the other."""

    code = "no-equi-key"


class KeyTypeMismatch(InvalidInput):
    """Two key columns have types that do not compare exactly."""

    code = "key-type-mismatch"


class InvalidOutput(InvalidInput):
    """A result column has no type, or its name is missing, not unique or reserved."""

    code = "invalid-output"


class UnknownStrategy(InvalidInput):
    """No strategy has that name."""

    code = "unknown-strategy"


class InvalidProbe(InvalidInput):
    """This way to search slices does not exist, or a family cannot be searched in this way."""

    code = "invalid-probe"


class InvalidChain(InvalidInput):
    """The given boundaries do not form a chain for the queries."""

    code = "invalid-chain"


class UnknownBoundary(InvalidInput):
    """A request names a slice by a boundary that the chain does not have, or that cannot change."""

    code = "unknown-boundary"


class NoSharedChain(InvalidInput):
    """The family has no single chain whose slices could be split or merged."""

    code = "no-shared-chain"


class InvalidPlan(InternalError):
    """A plan breaks an invariant."""

    code = "invalid-plan"


class NotRewritable(InvalidInput):
    """A part of a query cannot be replaced without changing other parts."""

    code = "not-rewritable"


class UnknownFamily(InvalidInput):
    """No family of queries has that id or key."""

    code = "unknown-family"


class UnknownStatistic(InvalidInput):
    """A statistic is about a stream or filter that does not exist."""

    code = "unknown-statistic"
