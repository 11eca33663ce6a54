/** Rate limits, boundaries and expiry, as callers see them. */
import t from "tap";
import { type Answer, auditOf } from "../kit/gateway.ts";
import { bodies, editInForce, entry, narrowed, recorded, select } from "./narrowed.ts";

for (const workers of [1, 2]) {
  t.test(
    `a rate limit holds over ${workers} processes, and counts a Batch as its elements`,
    async (t) => {
      const upstream = await recorded(t);
      const boundary = '[[boundaries]]\nvia = "query"\nusername = "rita"\nrate_limit = "4/hour"\n';
      const { ask, gateway } = await narrowed(
        t,
        `${entry("")}${boundary}`,
        upstream.url,
        `[server]\nworkers = ${workers}\n`,
      );
      const one = select({});
      const batch = await ask({ Batch: [one, one] });
      t.equal(batch.status, 200);
      const counted = async (answer: Answer) => (await auditOf(gateway, answer)).rates;
      const rate = { boundary: "query username=rita", limit: "4/hour" };
      t.strictSame(await counted(batch), [{ ...rate, counted: 2 }]);
      const denied = await ask({ Select: { database: "other", from: "t", columns: ["*"] } });
      t.equal(denied.status, 403);
      t.strictSame(await counted(denied), [{ ...rate, counted: 3 }], "a denied one counts too");
      t.equal((await ask(one)).status, 200);
      const limited = await ask(one);
      t.equal(limited.status, 429);
      t.equal(limited.body.code, "rate_limited");
      t.ok(Number(limited.headers.get("retry-after")) > 3000, "until the window ends");
      t.match(await auditOf(gateway, limited), {
        reason: "rate_limited",
        rates: [{ ...rate, counted: 5 }],
      });
      const unread = await ask("{");
      t.equal(unread.status, 429, "what is no query counts too");
      t.strictSame(await counted(unread), [{ ...rate, counted: 6 }]);
      const others = await gateway.query(one, await gateway.login());
      t.equal(others.status, 200, "another user goes on");
      t.equal(await counted(others), undefined);
    },
  );
}

t.test("a boundary holds for what comes by its way alone", async (t) => {
  const upstream = await recorded(t);
  const boundary = '[[boundaries]]\nvia = "mcp"\nrole = "ReadOnly"\n';
  const { ask, gateway, token } = await narrowed(t, `${entry("")}${boundary}`, upstream.url);
  const insert = { Insert: { database: "main", table: "tickets", values: [{ id: 1 }] } };
  t.equal((await ask(insert)).status, 200);
  const call = {
    jsonrpc: "2.0",
    id: 1,
    method: "tools/call",
    params: { name: "insert", arguments: insert.Insert },
  };
  const answer = await gateway.request("/mcp", {
    method: "POST",
    headers: {
      authorization: `Bearer ${token}`,
      "content-type": "application/json",
      accept: "application/json, text/event-stream",
      "mcp-protocol-version": "2025-06-18",
    },
    body: JSON.stringify(call),
  });
  t.match(answer.text, "role_insufficient");
  t.equal(bodies(upstream).length, 1);
});

t.test("an open stream is cut when the entry that opened it expires", async (t) => {
  const upstream = await recorded(t);
  upstream.answer = (_request, response) => {
    response.writeHead(200, { "content-type": "text/plain" });
    response.write("begun");
  };
  const route = '[[routes]]\npath = "/db/:database/tail"\nmethods = ["GET"]\naccess = "SELECT"\n';
  const { gateway, token } = await narrowed(t, entry(""), upstream.url, route);
  const get = () =>
    fetch(`${gateway.url}/db/main/tail`, { headers: { authorization: `Bearer ${token}` } });
  const openUntil = async (expires: Date) => {
    const lines = entry(`expires = ${expires.toISOString()}`);
    await editInForce(gateway, (text) =>
      text.replace(/\[\[acl\]\]\nusername = "rita"\n[^[]*/, lines),
    );
    return { expires, stream: await get() };
  };
  let { expires, stream } = await openUntil(new Date(Date.now() + 2000));
  // A machine may be so busy that the entry is over before the stream is open.
  for (let seconds = 4; stream.status !== 200 && seconds < 100; seconds *= 2) {
    ({ expires, stream } = await openUntil(new Date(Date.now() + seconds * 1000)));
  }
  t.equal(stream.status, 200);
  await t.rejects(stream.text(), "no end, but a cut");
  t.ok(Date.now() >= expires.getTime(), "not before its time");
  const after = await get();
  t.equal(after.status, 403);
  t.match(await after.json(), { code: "grant_expired" });
});
