import t from "tap";
import { isForwardableHeader } from "../../src/config/kinds.ts";
import {
  answerHeaders,
  gatewayHeaders,
  queryHeaders,
  streamHeaders,
} from "../../src/upstream/headers.ts";

const policy = {
  forwardHeaders: new Set(["x-tenant"]),
  forwardAuthorization: false,
  authorization: undefined,
};

t.test("a query takes along what is on the list and nothing else", async (t) => {
  const kept = queryHeaders(
    {
      "content-type": "application/json",
      "content-encoding": "gzip",
      accept: "*/*",
      "accept-language": "de",
      traceparent: "00-1",
      "x-tenant": "blue",
      authorization: "Bearer client",
      cookie: "a=b",
      "x-gatehouse-user": "admin",
      "x-forwarded-for": "1.2.3.4",
    },
    policy,
  );
  t.strictSame(Object.keys(kept), [
    ...["content-type", "accept", "accept-language", "traceparent", "x-tenant"],
  ]);
});

t.test("no header that the gateway adds may be let through from a client as well", async (t) => {
  const identity = { username: "alice", roles: ["Owner"], databases: ["main"] };
  const provenance = { requestId: "1", forwardedFor: "1.2.3.4", proto: "http", host: "a.test" };
  const added = Object.keys(gatewayHeaders({ ...provenance, identity }));
  t.ok(added.length >= 7);
  for (const name of added) t.notOk(isForwardableHeader(name), name);
});

t.test("what Connection names is taken off, in any case and with any space", async (t) => {
  const headers = { connection: "close,  X-Tenant ,ACCEPT", accept: "*/*", "x-tenant": "blue" };
  t.strictSame(queryHeaders(headers, policy), {});
  t.strictSame(streamHeaders(headers, policy, true), {});
});

t.test("the upstream's own credential wins over the client's", async (t) => {
  const headers = { authorization: "Bearer client" };
  const both = { ...policy, forwardAuthorization: true, authorization: "Basic own" };
  for (const kept of [queryHeaders(headers, both), streamHeaders(headers, both, false)]) {
    t.equal(kept.authorization, "Basic own");
  }
  const forwarding = { ...policy, forwardAuthorization: true };
  t.equal(queryHeaders(headers, forwarding).authorization, "Bearer client");
  t.equal(queryHeaders(headers, policy).authorization, undefined);
});

t.test("a stream keeps the length of its body, whatever Connection names", async (t) => {
  const named = { connection: "content-length", "content-length": "5" };
  t.equal(streamHeaders(named, policy, false)["content-length"], "5");
  const chunked = { connection: "transfer-encoding", "transfer-encoding": "chunked" };
  t.equal(streamHeaders(chunked, policy, false)["transfer-encoding"], "chunked");
});

t.test("a stream loses claims that the gateway alone may make, in any spelling", async (t) => {
  const claims = {
    "x-gatehouse-user": "admin",
    x_gatehouse_user: "admin",
    "x_gatehouse-role": "Owner",
    x_request_id: "mine",
    x_forwarded_for: "1.2.3.4",
    content_length: "7",
    transfer_encoding: "chunked",
    expect: "100-continue",
    cookie: "session=1",
    te: "trailers",
    upgrade: "websocket",
  };
  t.strictSame(streamHeaders(claims, policy, false), {});
  t.strictSame(streamHeaders(claims, policy, true), {}, "also from a trusted proxy");
});

t.test("where a stream comes from is believed from a trusted proxy alone", async (t) => {
  const headers = { forwarded: "for=1.2.3.4", "x-real-ip": "1.2.3.4", "x-forwarded-port": "443" };
  t.strictSame(streamHeaders(headers, policy, false), {});
  t.strictSame(streamHeaders(headers, policy, true), headers);
});

t.test("the gateway vouches for nobody where nobody was identified", async (t) => {
  const provenance = {
    requestId: "r",
    forwardedFor: "127.0.0.1",
    proto: "http",
    host: undefined,
    identity: undefined,
  };
  t.strictSame(gatewayHeaders(provenance), {
    "x-request-id": "r",
    "x-forwarded-for": "127.0.0.1",
    "x-forwarded-proto": "http",
  });
});

t.test(
  "an answer keeps order, spelling and repetition, and loses what is not for clients",
  async (t) => {
    const raw = [
      ...["Set-Cookie", "a=1", "Set-Cookie", "b=2", "ETag", '"x"'],
      ...["Connection", "keep-alive", "connection", "X-Hop", "X-Hop", "gone"],
      ...["X_Gatehouse_Decision", "allow", "X-Request-Id", "theirs"],
      ...["Keep-Alive", "timeout=5", "Transfer-Encoding", "chunked"],
    ];
    t.strictSame(answerHeaders(raw), ["Set-Cookie", "a=1", "Set-Cookie", "b=2", "ETag", '"x"']);
  },
);
