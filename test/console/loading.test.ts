import { readFileSync } from "node:fs";
import path from "node:path";
import t, { type Test } from "tap";
import { temporaryDirectory } from "../access/kit.ts";
import { startGateway } from "../kit/gateway.ts";
import { auditFile, consoleConfig, signedIn, startConsole } from "./kit.ts";

const hooks = new URL("loaded-modules.ts", import.meta.url);

/** The modules of the console that a gateway loads when it is used. */
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

t.test("without [console] none of it is loaded", async (t) => {
  t.strictSame(await loadedWith(t, ""), []);
  const { config } = await consoleConfig();
  t.ok((await loadedWith(t, config)).length > 20);
});

t.test("each page is refused to users without the right", async (t) => {
  const { gateway, url } = await startConsole(t, { config: auditFile });
  await gateway.addUser("alice", "ReadWrite");
  await gateway.addUser("dora", "DbAdmin");
  const everybody = ["/overview", "/sessions", "/approvals"];
  const user = "/access/user?user=alice";
  const managers = ["/access", user, "/access/entry?user=alice", "/access/new", "/access/check"];
  const administrators = ["/state", "/access/act?user=alice&action=remove"];
  const all = [...everybody, ...managers, "/audit", ...administrators, "/access/user?user=admin"];
  const allowed = { alice: 3, dora: 9, admin: all.length };
  for (const [name, count] of Object.entries(allowed)) {
    const client = await signedIn(t, url, name);
    for (const [at, route] of all.entries()) {
      const { status } = await client.get(route);
      t.ok(
        at < count ? status === 200 : [403, 404].includes(status),
        `${name} ${route}: ${status}`,
      );
    }
  }
});
