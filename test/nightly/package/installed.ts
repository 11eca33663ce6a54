/** The packed package, installed as users install it, from a registry that this test runs. */
import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import path from "node:path";
import { buffer } from "node:stream/consumers";
import { promisify } from "node:util";
import t, { type Test } from "tap";
import { create, extract } from "tar";
import * as z from "zod";
import { packPackage, readPackageJson, root } from "../../../scripts/package.ts";
import { smokeTest, useGateway } from "../../../scripts/smoke.ts";
import { temporaryHome } from "../../kit/gateway.ts";

const run = promisify(execFile);
const manifest = z.looseObject({ name: z.string(), version: z.string() });
type Manifest = z.infer<typeof manifest>;

interface Published {
  readonly manifest: Manifest;
  readonly tarball: () => Promise<Buffer>;
}

/** The packages that an installation has, packed from this machine's `node_modules`. */
function installedPackages(): Published[] {
  const lock = z
    .object({ packages: z.record(z.string(), z.looseObject({ dev: z.boolean().optional() })) })
    .parse(JSON.parse(readFileSync(path.join(root, "package-lock.json"), "utf8")));
  const places = Object.entries(lock.packages).filter(([place, { dev }]) => place !== "" && !dev);
  return places.flatMap(([place]) => {
    const cwd = path.join(root, place);
    let text: string;
    try {
      text = readFileSync(path.join(cwd, "package.json"), "utf8");
    } catch {
      // Optional, and for another platform.
      return [];
    }
    const nested = `./node_modules/`;
    const options = {
      cwd,
      gzip: { level: 1 },
      prefix: "package",
      portable: true,
      filter: (name: string) => !`${name}/`.startsWith(nested),
    };
    return [
      {
        manifest: manifest.parse(JSON.parse(text)),
        tarball: () => buffer(create(options, ["."])),
      },
    ];
  });
}

/** Serves packages as the npm registry does. */
async function startRegistry(t: Test, published: readonly Published[]): Promise<string> {
  const named = Map.groupBy(published, (one) => one.manifest.name);
  const server = createServer(async (request, response) => {
    const target = decodeURIComponent(new URL(request.url ?? "", "http://registry").pathname);
    const [, name = "", version] = /^\/((?:@[^/]+\/)?[^/]+)(?:\/-\/(.+)\.tgz)?$/.exec(target) ?? [];
    const versions = named.get(name);
    const one = versions?.find(({ manifest }) => manifest.version === version);
    if (one !== undefined) {
      response.end(await one.tarball());
      return;
    }
    if (versions === undefined || version !== undefined) {
      response.writeHead(404, { "Content-Type": "application/json" }).end('{"error":"not found"}');
      return;
    }
    const url = `http://${request.headers.host}/${name}/-`;
    const entries = versions.map(({ manifest }) => [
      manifest.version,
      { ...manifest, dist: { tarball: `${url}/${manifest.version}.tgz` } },
    ]);
    const latest = versions.at(-1)?.manifest.version;
    const document = { name, "dist-tags": { latest }, versions: Object.fromEntries(entries) };
    response.writeHead(200, { "Content-Type": "application/json" }).end(JSON.stringify(document));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  const address = server.address();
  if (address === null || typeof address === "string") throw new Error("no port");
  return `http://127.0.0.1:${address.port}`;
}

/** The environment of a user who has only this registry. */
function environment(registry: string, home: string): NodeJS.ProcessEnv {
  return {
    PATH: process.env.PATH,
    HOME: home,
    npm_config_registry: registry,
    npm_config_cache: path.join(home, ".npm"),
    npm_config_audit: "false",
    npm_config_fund: "false",
    npm_config_update_notifier: "false",
  };
}

const packed = temporaryHome(t);
const tarball = await packPackage(packed);
const { name, version } = readPackageJson();

t.test("the package has the same bytes under any umask", async (t) => {
  const again = temporaryHome(t);
  const umask = process.umask(0o077);
  t.teardown(() => process.umask(umask));
  const digest = (file: string) => createHash("sha256").update(readFileSync(file)).digest("hex");
  t.equal(digest(await packPackage(again)), digest(tarball));
});

t.test("the package contains only what it needs, and no link of it is relative", async (t) => {
  const directory = temporaryHome(t);
  const files: string[] = [];
  await extract({
    file: tarball,
    cwd: directory,
    strip: 1,
    onReadEntry: ({ path }) => files.push(path),
  });
  const top = new Set(files.map((file) => file.split("/")[1]));
  t.strictSame([...top].toSorted(), [
    "CHANGELOG.md",
    "LICENSE",
    "README.md",
    "bin",
    "dist",
    "gateway.toml.example",
    "package.json",
    "schemas",
  ]);
  for (const page of ["README.md", "CHANGELOG.md"]) {
    const text = readFileSync(path.join(directory, page), "utf8").replace(/^```.*?^```/gms, "");
    for (const [, target = ""] of text.matchAll(/\]\(([^)\s]+)\)/g)) {
      t.match(target, /^(https?:|#)/, `${page}: ${target}`);
    }
  }
});

t.test("the package works when it is installed from a registry", async (t) => {
  const own = {
    manifest: manifest.parse(JSON.parse(readFileSync(path.join(root, "package.json"), "utf8"))),
    tarball: async () => readFileSync(tarball),
  };
  const registry = await startRegistry(t, [...installedPackages(), own]);

  t.test("in an empty project", async (t) => {
    const project = path.join(temporaryHome(t), "project");
    mkdirSync(project);
    writeFileSync(path.join(project, "package.json"), "{}");
    const env = environment(registry, path.dirname(project));
    await run("npm", ["install", name], { cwd: project, env });
    const program = path.join(project, "node_modules/.bin/gatehouse");
    const { stdout } = await run(program, ["--version"], { cwd: project, env });
    t.equal(stdout.trim(), version);
    await useGateway(program, path.join(path.dirname(project), "home"), { env });
  });

  t.test("globally", async (t) => {
    const prefix = temporaryHome(t);
    const env = environment(registry, prefix);
    await run("npm", ["install", "--global", "--prefix", prefix, name], { cwd: prefix, env });
    await useGateway(path.join(prefix, "bin/gatehouse"), path.join(prefix, "home"), { env });
  });

  t.test("with npx", async (t) => {
    const home = temporaryHome(t);
    const env = environment(registry, home);
    await useGateway("npx", path.join(home, "home"), {
      flags: ["--yes", name],
      inGroup: true,
      env,
    });
  });

  t.test("from the tarball", async () => {
    await smokeTest(tarball, [`--registry=${registry}`]);
  });
});
