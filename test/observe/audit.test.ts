import t from "tap";
import { openSetting, select } from "../gateway/kit.ts";
import { decodePart } from "../identity/forge.ts";

t.test("each decision leaves one line that says who, what, why and by which entry", async (t) => {
  const { gateway } = await openSetting(t);
  const token = await gateway.addUser("bob", "ReadOnly");
  const find = (id: string | null) =>
    gateway.service.logged(({ requestId, audit }) => audit === true && requestId === id);
  const version = (await gateway.request("/readyz")).body.access_version;

  const allowed = await gateway.query(select, token);
  t.match(await find(allowed.headers.get("x-request-id")), {
    msg: "request",
    time: /^\d{4}-\d\d-\d\dT/,
    address: "127.0.0.1",
    method: "POST",
    path: "/query",
    user: "bob",
    tokenId: decodePart(token, 1).jti,
    decision: "allow",
    status: 200,
    accessVersion: version,
    operations: [
      { operation: "Select", database: "main", tables: ["t"], role: "ReadOnly", entry: "main" },
    ],
    ms: Number,
    bytes: Number,
  });

  const drop = { DropTable: { database: "main", table: "t" } };
  const denied = await gateway.query(drop, token);
  t.match(await find(denied.headers.get("x-request-id")), {
    user: "bob",
    decision: "deny",
    reason: "role_insufficient",
    status: 403,
    operations: [{ operation: "DropTable", role: "ReadOnly", entry: "main" }],
  });

  const login = await gateway.send("POST", "/login", { username: "bob", password: "wrong one" });
  t.match(await find(login.headers.get("x-request-id")), {
    path: "/login",
    user: "bob",
    reason: "credentials_invalid",
    operations: [{ operation: "login" }],
  });
});

t.test("a long Batch names its first operations and counts them all", async (t) => {
  const { gateway } = await openSetting(t);
  const answer = await gateway.query({ Batch: Array(100).fill(select) }, await gateway.login());
  const id = answer.headers.get("x-request-id");
  const line = await gateway.service.logged(({ requestId }) => requestId === id);
  t.equal(line.operationCount, 100);
  t.equal(Array.isArray(line.operations) && line.operations.length, 16);
});

t.test("what monitors ask all the time leaves no line", async (t) => {
  const { gateway } = await openSetting(t);
  const ids = [];
  for (const path of ["/healthz", "/readyz", "/.well-known/jwks.json"]) {
    ids.push((await gateway.request(path)).headers.get("x-request-id"));
  }
  const last = (await gateway.request("/nowhere")).headers.get("x-request-id");
  await gateway.service.logged(({ requestId }) => requestId === last);
  for (const id of ids) t.notOk(gateway.service.log.some(({ requestId }) => requestId === id));
});
