import { execFileSync } from "node:child_process";
import { chmodSync, mkdirSync, readdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import t from "tap";
import { temporaryHome } from "./kit/gateway.ts";
import { cleanEnvironment, Service } from "./kit/process.ts";
import { words } from "./kit/words.ts";

const program = fileURLToPath(new URL("../bin/gatehouse.js", import.meta.url));

/** Runs a command that caches its compiled modules under `base`. */
function run(base: string): string {
  const { NODE_COMPILE_CACHE: _, NODE_OPTIONS: __, ...environment } = cleanEnvironment(base);
  const env = { ...environment, XDG_CACHE_HOME: base };
  return execFileSync(process.execPath, [program, "key", "--help"], { env, encoding: "utf8" });
}

function fileCount(directory: string): number {
  const entries = readdirSync(directory, { recursive: true, withFileTypes: true });
  return entries.filter((entry) => entry.isFile()).length;
}

t.test("compiled modules are cached for the next start", async (t) => {
  const base = temporaryHome(t);
  const version = run(base);
  const kept = fileCount(path.join(base, "gatehouse"));
  t.ok(kept > 10, `${kept} files`);
  t.equal(run(base), version);
});

t.test("a cache directory that others may write is not used", async (t) => {
  const open = temporaryHome(t);
  chmodSync(open, 0o777);
  t.match(run(open), /Usage/);
  t.equal(fileCount(open), 0);

  const own = temporaryHome(t);
  const cache = path.join(own, "gatehouse");
  mkdirSync(cache);
  chmodSync(cache, 0o770);
  t.match(run(own), /Usage/);
  t.equal(fileCount(own), 0);
});

t.test("a command runs where nothing can be cached", async (t) => {
  t.match(run("/proc/nowhere"), /Usage/);
});

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
