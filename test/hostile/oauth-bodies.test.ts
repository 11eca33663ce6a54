import t from "tap";
import { callTool, refusalOf, send } from "../journeys/mcp.ts";
import { passwordOf, staffedHome } from "../journeys/staff.ts";
import { eventually } from "../kit/eventually.ts";
import { startGateway } from "../kit/gateway.ts";
import { select } from "../kit/queries.ts";
import { Wire } from "../kit/wire.ts";
import { statelessCall } from "../mcp/messages.ts";
import { obtainTokens } from "../oauth/flow.ts";
import { statusesOf } from "./kit.ts";

const grants = ["root * Owner", "alice main ReadWrite", "alice side ReadWrite"];
const gateway = await startGateway(t, {
  home: await staffedHome(t, grants),
  config: '[server]\nrequest_timeout = 1\n[[routes]]\npath = "/me"\naccess = "authenticated"\n',
});

// What is sent while the authorization server is loaded, by the first who asks for it, comes whole.
await gateway.request("/oauth/jwks");

const form = "application/x-www-form-urlencoded";
const places = { register: "application/json", token: form, revoke: form };

/** The head of a POST to a place of the authorization server, with these lines besides. */
function head(place: string, type: string, lines: string): string {
  return `POST /oauth/${place} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: ${type}\r\n${lines}\r\n`;
}

async function sendBytes(bytes: string): Promise<string> {
  const wire = await Wire.open(gateway.url);
  wire.send(bytes);
  return wire.untilClosed();
}

for (const [place, type] of Object.entries(places)) {
  t.test(`a body that is too large gets an answer at /oauth/${place}`, async (t) => {
    const large = "x".repeat(100_000);
    const told = head(place, type, `Content-Length: ${large.length}\r\n`);
    t.strictSame(statusesOf(await sendBytes(told + large)), [413]);
    t.strictSame(statusesOf(await sendBytes(told)), [413], "before it has come");
    const waits = head(place, type, `Content-Length: ${large.length}\r\nExpect: 100-continue\r\n`);
    t.strictSame(statusesOf(await sendBytes(waits)), [413], "and is not asked for");
    const chunk = `${large.length.toString(16)}\r\n${large}\r\n0\r\n\r\n`;
    const chunked = head(place, type, "Transfer-Encoding: chunked\r\nConnection: close\r\n");
    t.match(statusesOf(await sendBytes(chunked + chunk)), [/^4(?:13|00)$/], "in chunks too");
  });

  t.test(`who waits to be asked for a body is asked at /oauth/${place}`, async (t) => {
    const wire = await Wire.open(gateway.url);
    wire.send(head(place, type, "Content-Length: 2\r\nExpect: 100-continue\r\n"));
    await wire.until(/^HTTP\/1\.1 100 /);
    wire.send("{}");
    t.match(await wire.untilClosed(), /HTTP\/1\.1 40[01] .*"error":"invalid_/s);
  });

  t.test(`a body that does not come, or breaks off, harms nobody at /oauth/${place}`, async (t) => {
    const slow = await Wire.open(gateway.url);
    slow.send(`${head(place, type, "Content-Length: 20\r\n")}{`);
    const broken = await Wire.open(gateway.url);
    broken.send(`${head(place, type, "Content-Length: 20\r\n")}{`);
    const odd = head(place, type, "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n");
    t.strictSame(statusesOf(await sendBytes(`${odd}0\r\n\r\n`)), [400]);
    broken.socket.resetAndDestroy();
    t.strictSame(statusesOf(await slow.untilClosed()), [408]);
    await eventually("both are over", () => {
      const lines = gateway.service.log.filter(({ path }) => path === `/oauth/${place}`);
      return lines.some(({ status }) => status === 499);
    });
    const loud = gateway.service.log.filter(
      ({ level, audit }) => audit !== true && (level === "error" || level === "warn"),
    );
    t.strictSame(loud, [], "no operator is called for it");
  });
}

t.test("a token that its user has narrowed opens no more, at whatever door", async (t) => {
  const root = await gateway.login("root", passwordOf("root"));
  const columns = [{ name: "id", type: "int", primary_key: true }];
  for (const database of ["main", "side"]) {
    await gateway.query({ CreateDatabase: { database } }, root);
    await gateway.query({ CreateTable: { database, table: "t", columns } }, root);
  }
  const user = { username: "alice", password: passwordOf("alice") };
  const { accessToken } = await obtainTokens(gateway, { ...user, database: "main", reach: "read" });
  const rows = (database: string) => ({ database, from: "t", columns: ["*"] });
  t.equal(refusalOf(await callTool(gateway, "select", rows("main"), accessToken)), undefined);
  const where = { column: "id", cmp: "=", value: 1 };
  const denied: [name: string, args: Record<string, unknown>][] = [
    ["select", rows("side")],
    [
      "select",
      { ...rows("main"), join: { table: "side.t", on: "t.id = t.id", join_type: "INNER" } },
    ],
    ["insert", { database: "main", table: "t", values: [{ id: 1 }] }],
    ["update", { database: "main", table: "t", set: { id: 2 }, where }],
    ["delete", { database: "main", table: "t", where: null }],
    ["create_table", { database: "main", table: "u", columns }],
    ["drop_table", { database: "main", table: "t" }],
    ["list_tables", { database: "side" }],
    ["describe_table", { database: "side", table: "t" }],
    ["insert", { database: "side", table: "t", values: [{ id: 1 }] }],
  ];
  for (const [name, args] of denied) {
    const answer = await callTool(gateway, name, args, accessToken);
    t.ok(refusalOf(answer), `${name} ${JSON.stringify(args)}`);
  }
  for (const uri of ["gatehouse:///side/t", "gatehouse:///main/../side/t"]) {
    const answer = await send(gateway, statelessCall("resources/read", { uri }), accessToken);
    t.match(answer.body, { error: { code: Number } }, uri);
    t.notMatch(answer.text, /"columns"/);
  }
  for (const method of ["tools/list", "resources/list", "resources/templates/list"]) {
    const { text, status } = await send(gateway, statelessCall(method), accessToken);
    t.equal(status, 200);
    t.notMatch(text, /insert|drop_table|side/, method);
  }
  const routes = [
    ...["POST /query", "POST /logout", "GET /me", "GET /api/me", "GET /api/users"],
    ...["GET /api/access", "POST /api/users", "DELETE /api/users/alice/tokens"],
    ...["PUT /api/users/alice/password", "PUT /api/access/alice/main", "PATCH /api/users/alice"],
  ];
  for (const route of routes) {
    const [method = "", place = ""] = route.split(" ");
    const body = method === "GET" ? {} : { body: select };
    const headers = { authorization: `Bearer ${accessToken}`, "content-type": "application/json" };
    const answer = await gateway.request(place, { method, headers, ...body });
    t.match(answer, { status: 401, body: { code: "token_invalid" } }, route);
  }
});
