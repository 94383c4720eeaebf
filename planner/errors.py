"""Errors of the planner.

InvalidInput
* CqlSyntaxError        the text is not CQL
* UnsupportedCql        a construct that CQL does not support
* UnknownStream         FROM names a stream that is not registered
* UnknownColumn         the column, or the name before its dot, does not exist
* AmbiguousColumn       several streams have the column
* UnknownFunction       the scalar function does not exist
* TypeMismatch          an operator or function does not accept these types
* NoWindow              a stream of the query has no window
* InvalidWindow         a window is zero, negative, too long, or given twice
* NoEquiKey             no condition compares the two streams
* KeyTypeMismatch       key columns have types that cannot be compared exactly
* InvalidOutput         a result column has no type or no usable name
* UnknownStrategy       the strategy does not exist
* InvalidProbe          a way to search slices does not exist, or does not fit the family
* InvalidChain          boundaries do not form a chain for the queries
* UnknownBoundary       a slice is named by a boundary that does not exist
* NoSharedChain         a family has no single chain to split or merge
* NotRewritable         a part of a query cannot be replaced alone
* UnknownFamily         no family of queries has the requested id or key
* UnknownStatistic      a statistic is about a stream or filter that does not exist
InternalError
* InvalidPlan           a plan breaks an invariant

An error in a CQL text is raised with ``at``: a syntax node, a token or offsets. The public functions that
take the text replace ``at`` by a location (``planner.sql.dialect.locate``).
"""

from __future__ import annotations

from catalog.errors import InternalError, InvalidInput


class CqlSyntaxError(InvalidInput):
    """The text is not CQL."""

    code = "cql-syntax-error"


class UnsupportedCql(InvalidInput):
    """The text has a construct that CQL does not support."""

    code = "unsupported-cql"


class UnknownStream(InvalidInput):
    """FROM names a stream that is not registered."""

    code = "unknown-stream"


class UnknownColumn(InvalidInput):
    """The stream has no such column, or the name before the dot is unknown."""

    code = "unknown-column"


class AmbiguousColumn(InvalidInput):
    """A column is named without its stream, but several streams have a column of this name."""

    code = "ambiguous-column"


class UnknownFunction(InvalidInput):
    """The text calls a scalar function that does not exist."""

    code = "unknown-function"


class TypeMismatch(InvalidInput):
    """An operator or function does not accept values of these types."""

    code = "type-mismatch"


class NoWindow(InvalidInput):
    """A stream of the query has no window."""

    code = "no-window"


class InvalidWindow(InvalidInput):
    """A window is zero, negative, too long or given twice, or no pair of rows can satisfy it."""

    code = "invalid-window"


class NoEquiKey(InvalidInput):
    """No condition compares a column of one stream with a column of the other."""

    code = "no-equi-key"


class KeyTypeMismatch(InvalidInput):
    """Two key columns have types that cannot be compared exactly."""

    code = "key-type-mismatch"


class InvalidOutput(InvalidInput):
    """A result column has no type, or its name is missing, not unique or reserved."""

    code = "invalid-output"


class UnknownStrategy(InvalidInput):
    """A request names a strategy that does not exist."""

    code = "unknown-strategy"


class InvalidProbe(InvalidInput):
    """The requested way to search slices does not exist, or does not fit the slices of the family."""

    code = "invalid-probe"


class InvalidChain(InvalidInput):
    """The given boundaries do not form a chain that serves the queries."""

    code = "invalid-chain"


class UnknownBoundary(InvalidInput):
    """A request names a slice by a boundary that does not exist in the chain, or that cannot change."""

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
    """A request names a family by an id or key that no family has."""

    code = "unknown-family"


class UnknownStatistic(InvalidInput):
    """A statistic is about a stream or filter that does not exist."""

    code = "unknown-statistic"
