"""A page of another origin in a browser cannot pretend that a proxy has changed `Host`."""

import pytest
from playwright.sync_api import Browser

from tests.support.proxy import proxy
from tests.support.server import Server

pytestmark = pytest.mark.page

ATTACK = """
address => fetch(address, {
  method: "POST",
  headers: {"content-type": "text/plain", "x-forwarded-host": location.host},
  body: "A delight.",
}).then(answer => answer.status, error => error.name)
"""


@pytest.mark.parametrize("mode", ["cors", "no-cors"])
def test_page_of_another_origin_cannot_send_x_forwarded_host(browser: Browser, server: Server, mode: str) -> None:
    """Its preflight request is refused. Without one (`no-cors`), the browser leaves the header out."""

    def count(method: str, code: str) -> float:
        return server.metric("longdoc_http_requests_total", method=method, code=code)

    before = count("POST", "200")
    refused = ("OPTIONS", "405") if mode == "cors" else ("POST", "403")
    before_refused = count(*refused)
    with proxy(server.url, "/elsewhere") as other, browser.new_context() as context:
        page = context.new_page()
        page.goto(other.removesuffix("elsewhere/"))
        found = page.evaluate(ATTACK.replace("method:", f'mode: "{mode}", method:'), f"{server.url}/v1/classify")
    assert found == ("TypeError" if mode == "cors" else 0)
    server.wait_for(before_refused + 1, "longdoc_http_requests_total", method=refused[0], code=refused[1])
    assert count("POST", "200") == before
