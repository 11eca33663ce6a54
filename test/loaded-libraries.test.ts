import { writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { temporaryHome } from "./kit/gateway.ts";
import { Service } from "./kit/process.ts";
import { words } from "./kit/words.ts";

/**
 * Loaded before the gateway and its engine. Prints each library and some source folders when they
 * are first loaded, and Node's loaded modules on SIGUSR2.
 */
const hook = `import { registerHooks } from "node:module";
const seen = new Set();
const program = process.argv[2];
registerHooks({ load(url, context, next) {
  const [, library] = /.*node_modules\\/((?:@[^/]+\\/)?[^/]+)/.exec(url) ?? /src\\/(upstream|approvals)\\//.exec(url) ?? [];
  if (library !== undefined && !seen.has(library)) console.log(JSON.stringify({ program, library }));
  seen.add(library);
  return next(url, context);
} });
process.on("SIGUSR2", () => console.log(JSON.stringify({ ofNode: process.moduleLoadList })));`;

/** Loaded only once a request or the configuration needs it. */
const later = words(`
  @modelcontextprotocol/server @modelcontextprotocol/client oidc-provider hono http-proxy-3 kysely
  pg mysql2 undici @inquirer/password pino-pretty prom-client @opentelemetry/api
`);
/** Modules of Node: its `fetch` takes 11 MB, TLS 5 MB. */
const laterOfNode = ["internal/deps/undici/undici", "tls", "https", "zlib"];

t.test("a start loads only the libraries that it needs", async (t) => {
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
  t.ok(loaded.has("zod"), "libraries are reported");
  t.strictSame(
    later.filter((library) => loaded.has(library)),
    [],
  );
  service.child.kill("SIGUSR2");
  const { ofNode } = await service.logged((line) => "ofNode" in line);
  const modules = new Set(String(ofNode).split(","));
  t.ok(modules.has("NativeModule http"), "modules of Node are reported");
  t.strictSame(
    laterOfNode.filter((name) => modules.has(`NativeModule ${name}`)),
    [],
  );

  const metadata = await fetch(`${url}/.well-known/oauth-authorization-server`);
  t.equal(metadata.status, 200);
  await service.logged(({ library }) => library === "oidc-provider");
});
