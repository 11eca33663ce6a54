import { writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { temporaryHome } from "./kit/gateway.ts";
import { Service } from "./kit/process.ts";

/**
 * Loaded before the gateway, and its engine: tells of each library, and of what is loaded first of a few directories,
 * once; and of what is loaded of Node when it is asked.
 */
const hook = `import { registerHooks } from "node:module";
const told = new Set();
const program = process.argv[2];
registerHooks({ load(url, context, next) {
  const [, library] = /.*node_modules\\/((?:@[^/]+\\/)?[^/]+)/.exec(url) ?? /src\\/(upstream|approvals)\\//.exec(url) ?? [];
  if (library !== undefined && !told.has(library)) console.log(JSON.stringify({ program, library }));
  told.add(library);
  return next(url, context);
} });
process.on("SIGUSR2", () => console.log(JSON.stringify({ ofNode: process.moduleLoadList })));`;

/** What somebody has to ask for, or to configure, before it is loaded. */
const later = [
  ...["@modelcontextprotocol/server", "@modelcontextprotocol/client", "oidc-provider", "hono"],
  ...["http-proxy-3", "kysely", "pg", "mysql2", "undici", "@inquirer/password"],
  ...["pino-pretty", "prom-client", "@opentelemetry/api"],
];
/** The same of Node: its `fetch` takes 11 MB, TLS takes 5. */
const laterOfNode = ["internal/deps/undici/undici", "tls", "https", "zlib"];

t.test("a start loads no library that nobody has asked for", async (t) => {
  const home = temporaryHome(t);
  writeFileSync(path.join(home, "gateway.toml"), '[upstream]\nurl = "http://127.0.0.1:1"\n');
  const service = new Service(home, ["serve", "--port", "0"], {
    GATEHOUSE_ADMIN_PASSWORD: "correct horse",
    NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(hook)}`,
  });
  t.teardown(() => service.stop());
  const { url } = await service.logged(({ msg }) => String(msg).startsWith("listening on"));
  t.equal((await fetch(`${url}/healthz`)).status, 200);
  const loaded = new Set(service.log.map(({ library }) => String(library)));
  t.ok(loaded.has("zod"), "libraries are told");
  t.strictSame(
    later.filter((library) => loaded.has(library)),
    [],
  );
  service.child.kill("SIGUSR2");
  const { ofNode } = await service.logged((line) => "ofNode" in line);
  const modules = new Set(String(ofNode).split(","));
  t.ok(modules.has("NativeModule http"), "modules of Node are told");
  t.strictSame(
    laterOfNode.filter((name) => modules.has(`NativeModule ${name}`)),
    [],
  );

  const metadata = await fetch(`${url}/.well-known/oauth-authorization-server`);
  t.equal(metadata.status, 200);
  await service.logged(({ library }) => library === "oidc-provider");
});

t.test("an engine starts beside its gateway, and reads no configuration", async (t) => {
  const service = new Service(temporaryHome(t), ["serve", "--port", "0"], {
    GATEHOUSE_ADMIN_PASSWORD: "correct horse",
    NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(hook)}`,
  });
  t.teardown(() => service.stop());
  await service.logged(({ msg }) => String(msg).startsWith("listening on"));
  const loadedBy = (name: string) =>
    service.log.filter(({ program }) => program === name).map(({ library }) => library);
  const parts = loadedBy("serve").filter((name) => name === "upstream" || name === "approvals");
  t.strictSame(
    parts,
    ["upstream", "approvals"],
    "its process is started before the rest is loaded",
  );
  await service.logged(({ msg }) => msg === "engine listening");
  const engine = loadedBy("engine");
  t.ok(engine.includes("pino"), "its libraries are told");
  t.notOk(engine.includes("zod") || engine.includes("smol-toml"), engine.join(" "));
});
