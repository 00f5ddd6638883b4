"""Who sees pages and may submit forms, and what every answer carries."""

import asyncio

import pytest
from ui_tools import ITEMS, TOKENS, Browser, Html, doubling, waiting

from outlast import Outlast, SettingsError
from outlast.http import Caller, Role, ui
from outlast.http.rest.tokens import Tokens
from outlast.http.web.signed_cookies import SESSION_SECONDS, caller_in, make_cookie

OLGA = TOKENS["olga"][1]
SAME = {"origin": "http://server", "sec-fetch-site": "same-origin"}


def test_visitor_signs_in_and_out(visited):
    async def scenario(site):
        browser = site.browser()
        page = Html(await browser.get("/runs?status=parked"))
        assert page.hidden["next"] == "/runs?status=parked"
        answer = await browser.submit("/login", token=OLGA, next=page.hidden["next"])
        assert str(answer.url).endswith("/runs?status=parked")
        (cookie,) = browser.cookies.jar
        assert cookie.has_nonstandard_attr("HttpOnly")
        assert cookie.get_nonstandard_attr("SameSite") == "strict"
        assert OLGA not in cookie.value
        await browser.submit("/logout", csrf=Html(answer).hidden["csrf"])
        assert Html(await browser.get("/runs")).hidden["next"] == "/runs"

    visited(scenario)


def test_cookie_is_secure_under_https_and_has_the_path_of_the_mount(visited):
    async def scenario(site):
        browser = Browser(site.web, base="https://server")
        headers = {"origin": "https://server"}
        answer = await browser.post(
            "/ops/login", data={"token": OLGA}, headers=headers, follow_redirects=False
        )
        cookie = answer.headers["set-cookie"].lower()
        assert "; secure" in cookie
        assert "path=/ops;" in cookie

    visited(scenario, root="/ops")


@pytest.mark.parametrize(
    "then", ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)"]
)
def test_signing_in_leads_to_no_other_site(visited, then):
    async def scenario(site):
        browser = site.browser()
        answer = await browser.post(
            "/login", data={"token": OLGA, "next": then}, headers=SAME, follow_redirects=False
        )
        assert (answer.status_code, answer.headers["location"]) == (303, "/")

    visited(scenario)


def test_wrong_tokens_are_refused_and_limited(visited):
    async def scenario(site):
        browser = site.browser()
        for token in ("", "x" * 30, "ünicode-token-0123456789"):
            answer = await browser.submit("/login", token=token)
            assert answer.status_code == 401
            assert "No caller has this token" in answer.text
        answers = [await browser.submit("/login", token="y" * 30) for _ in range(12)]
        assert answers[-1].status_code == 429

    visited(scenario)


def test_cookies_cannot_be_forged_or_outlive_their_token():
    tokens = Tokens.parse(ITEMS)
    cookie = make_cookie(Caller("olga", Role.OPERATOR), OLGA.encode(), tokens, now=1000.0)
    assert caller_in(cookie, tokens, now=1000.0) == Caller("olga", Role.OPERATOR)
    assert caller_in(cookie, tokens, now=1001.0 + SESSION_SECONDS) is None
    others = Tokens.parse([one for one in ITEMS if not one.startswith("olga")])
    assert caller_in(cookie, others, now=1000.0) is None
    replaced = Tokens.parse(["olga:operator:another-token-0123456789"])
    assert caller_in(cookie, replaced, now=1000.0) is None
    name, expiry, nonce, mac = cookie.split(".")
    vera = make_cookie(Caller("vera", Role.VIEWER), TOKENS["vera"][1].encode(), tokens).split(".")
    for forged in (
        f"{name}.{int(expiry) + 1}.{nonce}.{mac}",
        f"{vera[0]}.{expiry}.{nonce}.{mac}",
        f"{name}.{vera[1]}.{vera[2]}.{vera[3]}",
        f"{name}.{expiry}.{nonce}.",
        "a.b.c.d",
        "...",
        "",
        "ü.1.2.3",
        "x" * 5_000,
    ):
        assert caller_in(forged, tokens, now=1000.0) is None, forged


def test_every_answer_has_the_policy(visited):
    async def scenario(site):
        olga = await site.as_("olga")
        await (await site.app.start(doubling(1), id="r1")).result()
        for path in ("/login", "/runs", "/runs/r1", "/runs/no", "/nothing", "/static/outlast.js"):
            answer = await olga.get(path)
            policy = answer.headers["content-security-policy"]
            for part in ("default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'"):
                assert part in policy
            assert "unsafe" not in policy
            assert answer.headers["x-content-type-options"] == "nosniff"
        assert (await olga.get("/runs")).headers["cache-control"] == "no-store"

    visited(scenario)


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://server", "sec-fetch-site": "same-site"},
        {"sec-fetch-site": "cross-site"},
        {"origin": "http://server:8080"},
        {},
    ],
)
def test_forms_of_other_sites_change_nothing(visited, headers):
    async def scenario(site):
        olga = await site.as_("olga")
        await site.app.submit(waiting("?"), id="r1")
        fields = Html(await olga.get("/runs/r1/cancel")).hidden
        answer = await olga.post("/runs/r1/cancel", data=fields, headers=headers)
        assert answer.status_code == 403
        (run,) = await site.app.runs()
        assert run.status == "queued"

    visited(scenario, worker=False)


def test_form_needs_the_token_of_its_visitor(visited):
    async def scenario(site):
        olga, sam = await site.as_("olga"), await site.as_("sam")
        await site.app.submit(waiting("?"), id="r1", by="sam")
        fields = Html(await sam.get("/runs/r1/cancel")).hidden
        assert (await olga.submit("/runs/r1/cancel", **fields)).status_code == 403
        assert (await olga.submit("/runs/r1/cancel", why="x")).status_code == 403
        json = {**SAME, "content-type": "application/json"}
        answer = await olga.post("/runs/r1/cancel", content=b"{}", headers=json)
        assert answer.status_code == 415
        big = {**fields, "why": "x" * 2_000_000}
        assert (await sam.submit("/runs/r1/cancel", **big)).status_code == 413
        many = "&".join(f"a{n}=1" for n in range(5_000))
        answer = await sam.post(
            "/runs/r1/cancel",
            content=many,
            headers={**SAME, "content-type": "application/x-www-form-urlencoded"},
        )
        assert answer.status_code == 400
        assert (await sam.submit("/runs/r1/cancel", **fields)).status_code == 200

    visited(scenario, worker=False)


def test_program_may_identify_visitors_itself(visited):
    async def authenticate(request):
        user = request.headers.get("x-user")
        return Caller(user, Role.VIEWER if user == "vera" else Role.OPERATOR) if user else None

    async def scenario(site):
        await site.app.submit(waiting("?"), id="r1")
        assert (await site.browser().get("/runs")).status_code == 401
        assert (await site.browser().get("/login")).status_code != 200
        ann = site.browser(headers={"x-user": "ann"})
        answer = await ann.act("/runs/r1/cancel", why="enough")
        assert answer.status_code == 200
        assert "enough (by ann)" in answer.text
        vera = site.browser(headers={"x-user": "vera"})
        assert (await vera.get("/runs/r1/cancel")).status_code == 403

    visited(scenario, worker=False, authenticate=authenticate)


def test_ui_says_how_to_name_its_visitors():
    with pytest.raises(SettingsError, match="OUTLAST_API_TOKENS"):
        ui(Outlast("memory:"))
    with pytest.raises(SettingsError, match="several ways"):
        ui(Outlast("memory:"), tokens=ITEMS, authenticate=lambda _: None)


def test_ui_of_an_app_that_is_not_open_says_so():
    async def main():
        browser = Browser(ui(Outlast("memory:"), tokens=ITEMS))
        answer = await browser.submit("/login", token=OLGA, next="/runs")
        assert answer.status_code == 503
        assert "not open" in answer.text

    asyncio.run(main())
