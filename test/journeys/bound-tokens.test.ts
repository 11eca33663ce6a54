/** Tokens that are bound to a key of their holder (RFC 7800): without its proof they open nothing. */
import path from "node:path";
import t from "tap";
import { openSetting, select } from "../gateway/kit.ts";
import { decodePart, readKey, sign } from "../identity/forge.ts";
import { ADMIN_PASSWORD } from "../kit/gateway.ts";
import { statelessCall } from "../mcp/messages.ts";
import { obtainTokens } from "../oauth/flow.ts";
import { refusalOf, send } from "./mcp.ts";

const confirmations = {
  DPoP: { jkt: "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I" },
  mTLS: { "x5t#S256": "bwcK0esc3ACC3DB2Y5_lESsXE8o9ltc05O89jdN-dg2" },
  nothing: {},
  null: null,
};
const config = '[[routes]]\npath = "/app"\nmethods = ["POST"]\naccess = "authenticated"\n';

t.test("a token that is bound to a key opens no door as a plain bearer token", async (t) => {
  const { gateway, upstream } = await openSetting(t, { config });
  const good = await gateway.login();
  const key = readKey(gateway.home);
  const header = { alg: key.alg, kid: key.kid, typ: "JWT" };
  const list = statelessCall("tools/list");
  const doors: Record<string, (token: string) => Promise<{ status: number; body: object }>> = {
    "/query": (token) => gateway.query(select, token),
    "/mcp": (token) => send(gateway, list, token),
    "/app": (token) => gateway.send("POST", "/app", {}, token),
    "/api/users": (token) =>
      gateway.request("/api/users", { headers: { authorization: `Bearer ${token}` } }),
    "/logout": (token) => gateway.send("POST", "/logout", undefined, token),
  };
  for (const [door, show] of Object.entries(doors)) {
    for (const [kind, cnf] of Object.entries(confirmations)) {
      const bound = await sign(key, header, { ...decodePart(good, 1), cnf });
      t.match(await show(bound), { status: 401, body: { code: "token_invalid" } }, door + kind);
    }
  }
  t.equal(upstream.take().length, 0);
  for (const [door, show] of Object.entries(doors)) {
    t.equal((await show(good)).status, 200, `${door} without it`);
  }
});

t.test("an access token for /mcp that is bound to a key is refused there", async (t) => {
  const { gateway } = await openSetting(t);
  const options = { username: "admin", password: ADMIN_PASSWORD };
  const { accessToken } = await obtainTokens(gateway, options);
  const key = readKey(path.join(gateway.home, "oauth"));
  const header = { alg: key.alg, kid: key.kid, typ: "at+jwt" };
  const list = statelessCall("tools/list");
  for (const [kind, cnf] of Object.entries(confirmations)) {
    const bound = await sign(key, header, { ...decodePart(accessToken, 1), cnf });
    t.equal(refusalOf(await send(gateway, list, bound)), "token_invalid", kind);
  }
  const same = await sign(key, header, decodePart(accessToken, 1));
  t.equal((await send(gateway, list, same)).status, 200, "without it, it is good");
});
