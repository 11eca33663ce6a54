import { readFileSync } from "node:fs";
import path from "node:path";
import t, { type Test } from "tap";
import { temporaryDirectory } from "../access/kit.ts";
import { freePort } from "../kit/free-port.ts";
import { startGateway } from "../kit/gateway.ts";
import { signedIn, startConsole } from "./kit.ts";

const hooks = new URL("loaded-modules.ts", import.meta.url);

/** What of the console a gateway loads that is used. */
async function loadedWith(t: Test, config: string): Promise<string[]> {
  const file = path.join(temporaryDirectory(t), "modules");
  const env = { NODE_OPTIONS: `--import=${hooks}`, LOADED_MODULES: file };
  const gateway = await startGateway(t, { config, env });
  const token = await gateway.addUser("alice", "ReadWrite");
  await gateway.request("/", { headers: { accept: "text/html" } });
  await gateway.query({ Select: { database: "main", from: "t", columns: ["*"] } }, token);
  await gateway.request("/mcp");
  await gateway.service.stop("SIGTERM");
  const loaded = readFileSync(file, "utf8").trim().split("\n");
  t.ok(
    loaded.some((url) => url.endsWith("/src/gateway/start.ts")),
    "modules are written down",
  );
  const ofConsole = /\/src\/console\/|\/node_modules\/(?:@hono\/node-server|hono)\//;
  return loaded.filter((url) => ofConsole.test(url));
}

t.test("without [console] nothing of it is loaded", async (t) => {
  t.strictSame(await loadedWith(t, ""), []);
  const config = `[console]\nlisten = "127.0.0.1:${await freePort()}"\n`;
  t.ok((await loadedWith(t, config)).length > 20, "with it, it is");
});

t.test("whoever may not see a page is told so by the gateway's own rules", async (t) => {
  const { gateway, url } = await startConsole(t, { config: '[audit]\nfile = "audit.log"\n' });
  await gateway.addUser("alice", "ReadWrite");
  await gateway.addUser("dora", "DbAdmin");
  const everybody = ["/overview", "/sessions", "/approvals"];
  const managers = [
    ...["/access", "/access/user?user=alice", "/access/entry?user=alice", "/access/new"],
    ...["/access/check", "/audit"],
  ];
  const administrators = [
    "/state",
    "/access/act?user=alice&action=remove",
    "/access/user?user=admin",
  ];
  const cases: [name: string, password: string, allowed: string[]][] = [
    ["alice", "alice password", everybody],
    ["dora", "dora password", [...everybody, ...managers]],
    ["admin", "correct horse", [...everybody, ...managers, ...administrators]],
  ];
  for (const [name, password, allowed] of cases) {
    const client = await signedIn(t, url, name, password);
    for (const route of [...everybody, ...managers, ...administrators]) {
      const { status } = await client.get(route);
      const isAllowed = allowed.includes(route);
      t.ok(isAllowed ? status === 200 : [403, 404].includes(status), `${name} ${route}: ${status}`);
    }
  }
});
