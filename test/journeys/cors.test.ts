import t from "tap";
import { openSetting, select } from "../gateway/kit.ts";

const page = "https://app.example.com";
const config = `[server]\nallowed_origins = ["${page}", "http://localhost:3000"]\n`;

function preflight(origin: string, method = "POST"): RequestInit {
  const headers = {
    origin,
    "access-control-request-method": method,
    "access-control-request-headers": "authorization,content-type",
  };
  return { method: "OPTIONS", headers };
}

const shared = await openSetting(t, { config });

t.test("a page of an allowed origin may ask, and read what it is answered", async (t) => {
  const { gateway, upstream } = shared;
  const asked = await gateway.request("/query", preflight(page));
  t.equal(asked.status, 204);
  t.equal(asked.text, "");
  t.equal(asked.headers.get("access-control-allow-origin"), page);
  t.equal(asked.headers.get("access-control-allow-methods"), "POST");
  t.match(asked.headers.get("access-control-allow-headers"), /Authorization.*Content-Type/);
  t.match(asked.headers.get("access-control-allow-headers"), /X-Gatehouse-Approval/);
  t.equal(asked.headers.get("access-control-allow-credentials"), null, "tokens, not cookies");
  t.equal(asked.headers.get("vary"), "Origin");
  t.ok(asked.headers.get("x-request-id"));

  const headers = {
    origin: page,
    "content-type": "application/json",
    authorization: `Bearer ${await gateway.login()}`,
  };
  const init = { method: "POST", headers, body: JSON.stringify(select) };
  const answer = await gateway.request("/query", init);
  t.equal(answer.status, 200);
  t.equal(answer.headers.get("access-control-allow-origin"), page);
  t.match(
    answer.headers.get("access-control-expose-headers"),
    /X-Request-Id.*X-Gatehouse-Narrowed/,
  );
  t.equal(upstream.take().length, 1);
  const refused = await gateway.request("/query", { ...init, body: "{}" });
  t.equal(refused.status, 400);
  t.equal(refused.headers.get("access-control-allow-origin"), page, "a refusal can be read too");
});

t.test("a page of any other origin is told nothing", async (t) => {
  const { gateway, upstream } = shared;
  const others = [
    ...["https://app.example.com.evil", "http://app.example.com", "https://APP.example.com"],
    ...["https://app.example.com:444", "null", "*", "http://localhost:3001"],
  ];
  for (const origin of others) {
    const asked = await gateway.request("/query", preflight(origin));
    t.equal(asked.status, 405, origin);
    t.equal(asked.headers.get("access-control-allow-origin"), null);
    const answer = await gateway.request("/healthz", { headers: { origin } });
    t.equal(answer.status, 200);
    t.equal(answer.headers.get("access-control-allow-origin"), null);
    t.equal(answer.headers.get("vary"), "Origin", "so that no cache mixes answers up");
  }
  t.equal(upstream.take().length, 0);
});

t.test("OPTIONS that is no preflight, or on an unknown path, is answered as ever", async (t) => {
  const { gateway } = shared;
  const plain = await gateway.request("/query", { method: "OPTIONS", headers: { origin: page } });
  t.equal(plain.status, 405);
  t.equal(plain.headers.get("allow"), "POST");
  t.equal((await gateway.request("/nowhere", preflight(page))).status, 404);
});

t.test("without allowed origins no answer says a word of them", async (t) => {
  const { gateway } = await openSetting(t);
  t.equal((await gateway.request("/query", preflight(page))).status, 405);
  const { headers } = await gateway.request("/healthz", { headers: { origin: page } });
  t.notOk([...headers.keys()].some((name) => name.startsWith("access-control-")));
  t.equal(headers.get("vary"), null);
});
