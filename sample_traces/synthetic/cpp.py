"""Spell C++ names as the demangler does."""

AT = "at::native::"
ANONYMOUS = "at::native::(anonymous namespace)::"
BF16 = "c10::BFloat16"


def instance(template: str, *arguments: str) -> str:
    """Return a template's instance; two closing brackets keep a space between them."""
    text = ", ".join(arguments)
    return f"{template}<{text}{' ' if text.endswith('>') else ''}>"


def dispatched(function: str, dispatch: int, type_index: int, parameters: str = BF16) -> str:
    """Return the lambda that a kernel's dtype dispatch picks for one type."""
    return (
        f"{AT}{function}::{{lambda()#{dispatch}}}::operator()() const"
        f"::{{lambda()#{type_index}}}::operator()() const::{{lambda({parameters})#1}}"
    )
