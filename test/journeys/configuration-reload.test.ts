import { readFile, rm, writeFile } from "node:fs/promises";
import path from "node:path";
import t, { type Test } from "tap";
import { ask, open as openAnswer } from "../kit/client.ts";
import { eventually } from "../kit/eventually.ts";
import { putInPlace, startGateway, type TestGateway, temporaryHome } from "../kit/gateway.ts";
import { Service } from "../kit/process.ts";
import { select } from "../kit/queries.ts";
import { tables } from "../kit/tables.ts";
import { RecordingUpstream } from "../kit/upstream.ts";
import { FixtureServer } from "../mcp/fixture-server.ts";
import { statelessCall } from "../mcp/messages.ts";
import { callTool, refusalOf } from "./mcp.ts";

const upstream = await new RecordingUpstream().listen(t);
const mcpServer = new FixtureServer();
const mcpUrl = await mcpServer.listen(t);

const secret = "Bearer of-the-mcp-server";
const tools = (...names: string[]) =>
  tables(
    "mcp.tools",
    names.map((name) => ({ name, permission: "SELECT", database: "main" })),
  );
const routes = (...paths: string[]) =>
  tables(
    "routes",
    paths.map((path) => ({ path, access: "authenticated" })),
  );

function text(server: string, more = "", mcp = ""): string {
  return `[server]\n${server}\n[mcp]\nupstream = "${mcpUrl}"\n${mcp}\n${more}`;
}

async function scene(t: Test, workers: number) {
  const config = text(`workers = ${workers}`, routes("/old") + tools("test_simple_text"));
  const gateway = await startGateway(t, { upstream: upstream.url, config });
  const file = path.join(gateway.home, "gateway.toml");
  const [head = ""] = (await readFile(file, "utf8")).split("[server]");
  const token = await gateway.login();
  let lines = gateway.service.log.length;

  async function write(text: string, outcome: RegExp): Promise<Record<string, unknown>> {
    lines = gateway.service.log.length;
    await putInPlace(file, head + text);
    return gateway.service.logged(
      (line) => gateway.service.log.indexOf(line) >= lines && outcome.test(String(line.msg)),
    );
  }
  return { gateway, file, head, token, write };
}

const get = (gateway: TestGateway, route: string, token: string) =>
  ask(`${gateway.url}${route}`, { headers: { authorization: `Bearer ${token}` } });

t.test("routes, tools and limits change without a restart, in each worker", async (t) => {
  const { gateway, file, token, write } = await scene(t, 2);
  /** Uses enough new connections that every worker has almost certainly answered. */
  const statuses = async (route: string) => {
    const asked = Array.from({ length: 8 }, () => get(gateway, route, token));
    return new Set((await Promise.all(asked)).map(({ status }) => status));
  };
  t.strictSame(await statuses("/old"), new Set([200]));
  t.strictSame(await statuses("/new"), new Set([404]));
  t.equal(refusalOf(await callTool(gateway, "test_simple_text", {}, token)), undefined);

  const changed = text(
    'workers = 2\nmax_body_bytes = 64\nallowed_origins = ["https://app.example"]',
    routes("/new") + tools("test_tool_with_progress"),
    "max_body_bytes = 1024",
  );
  const line = await write(changed, /^configuration reloaded$/);
  t.match(line.changed, [
    "server.max_body_bytes: 10485760 -> 64",
    /^server\.allowed_origins: \+ "https:\/\/app\.example"$/,
    /^routes: - \{ path = "\/old".*, \+ \{ path = "\/new"/,
    "mcp.max_body_bytes: 1048576 -> 1024",
    /^mcp\.tools: - \{ name = "test_simple_text".*, \+ \{ name = "test_tool_with_progress"/,
  ]);
  t.strictSame(await statuses("/old"), new Set([404]));
  t.strictSame(await statuses("/new"), new Set([200]));
  const long = { text: "x".repeat(1024) };
  t.equal((await callTool(gateway, "test_simple_text", long, token)).status, 413);
  const tooLong = await gateway.query(select.padEnd(65), token);
  t.equal(tooLong.status, 413);
  const page = await gateway.request("/healthz", {
    headers: { origin: "https://app.example" },
  });
  t.equal(page.headers.get("access-control-allow-origin"), "https://app.example");

  await write(changed.replace("= 64", "= 4096"), /^configuration reloaded$/);
  t.equal(refusalOf(await callTool(gateway, "test_simple_text", {}, token)), "tool_without_policy");
  t.equal(refusalOf(await callTool(gateway, "test_tool_with_progress", {}, token)), undefined);
  t.equal((await gateway.query(select, token)).status, 200);

  await rm(file);
  await gateway.service.logged(({ msg }) => String(msg).startsWith("configuration refused"));
  t.strictSame(await statuses("/new"), new Set([200]), "the last good state stays");
  t.equal(await gateway.service.stop(), 0);
});

t.test("an invalid file changes nothing, and keys that need a restart are named", async (t) => {
  const { gateway, token, write } = await scene(t, 1);
  const good = routes("/old") + tools("test_simple_text");
  const broken = text('workers = 1\nmax_body_bytes = "much"', routes("/new"));
  const refused = await write(broken, /^configuration refused/);
  const file = path.join(gateway.home, "gateway.toml");
  t.match(refused, { level: "error", file, key: "server.max_body_bytes", reason: /found "much"/ });
  t.equal(
    (await readFile(file, "utf8")).split("\n")[Number(refused.line) - 1],
    'max_body_bytes = "much"',
  );
  t.equal((await get(gateway, "/old", token)).status, 200);
  t.equal((await get(gateway, "/new", token)).status, 404, "all or nothing");
  await write(text("workers = 1", good), /^the configuration is valid again/);

  const waiting = text(
    "workers = 2\nport = 1",
    `${routes("/new")}${good}`,
    `authorization = "${secret}"`,
  );
  const { keys } = await write(waiting, /take effect after a restart$/);
  t.strictSame(keys, ["server.workers", "mcp.authorization"], "the port is the command line's");
  t.equal((await get(gateway, "/new", token)).status, 200, "the rest is in force");
  t.notMatch(gateway.service.output, secret);

  gateway.service.child.kill("SIGHUP");
  await eventually("it is logged again", () => {
    return gateway.service.log.filter(({ msg }) => /restart$/.test(String(msg))).length === 2;
  });
  const reloads = gateway.service.log.filter(({ msg }) => msg === "configuration reloaded");
  t.equal(reloads.length, 1, "only the applied change is logged");
});

t.test("streams are cut when their route or tool is removed from the configuration", async (t) => {
  upstream.answer = (_, response) => response.writeHead(200).flushHeaders();
  const { gateway, token, write } = await scene(t, 1);
  const both = routes("/old", "/kept") + tools("wait", "test_simple_text");
  await write(text("workers = 1", both), /^configuration reloaded$/);
  const headers = { authorization: `Bearer ${token}` };
  const { headers: own, ...call } = statelessCall("tools/call", { name: "wait", arguments: {} });
  const streams = [
    await openAnswer(`${gateway.url}/old`, { headers }),
    await openAnswer(`${gateway.url}/mcp`, { ...call, headers: { ...own, ...headers } }),
  ];
  const kept = await openAnswer(`${gateway.url}/kept`, { headers });
  for (const stream of [...streams, kept]) stream.on("error", () => {}).resume();
  await write(
    text("workers = 1", routes("/kept") + tools("test_simple_text")),
    /^configuration reloaded$/,
  );
  await eventually("both are cut", () => streams.every(({ destroyed }) => destroyed));
  t.notOk(kept.destroyed);
  kept.destroy();
});

t.test("a configuration file created after the start takes effect after a restart", async (t) => {
  const home = temporaryHome(t);
  const cwd = temporaryHome(t);
  const service = new Service(cwd, ["serve", "--port", "0"], { GATEHOUSE_HOME: home });
  t.teardown(() => service.stop("SIGKILL"));
  await service.logged(({ msg }) => String(msg).startsWith("listening on"));
  const found = (file: string) =>
    service.logged((line) => line.file === file && /restart to apply it/.test(String(line.msg)));
  for (const directory of [home, cwd]) {
    const file = path.join(directory, "gateway.toml");
    await writeFile(file, "[server]\nmax_body_bytes = 64\n", { mode: 0o600 });
    t.equal((await found(file)).level, "warn");
  }
  t.notMatch(service.output, /configuration re(?:loaded|fused)/);
});
