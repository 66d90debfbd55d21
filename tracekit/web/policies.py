"""What browsers may do with the pages: their content security policies."""

PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)

REPORT_PAGE_POLICY = PAGE_POLICY.replace("style-src", "style-src 'unsafe-inline'").replace("data:", "data: blob:")
"""Of pages that hold a report: its style is in the page; its script is a file of this site, like all scripts."""

REPORT_FILE_POLICY = (
    "sandbox allow-scripts allow-downloads; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:; font-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Of report files: a document made from the user's data, in an origin of its own without network access."""
