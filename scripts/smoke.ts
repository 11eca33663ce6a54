/**
 * Installs a packed package in an empty project, starts its gateway and runs queries. It needs no
 * package itself.
 * `node scripts/smoke.ts release/gatehouse-gateway-0.1.0.tgz`
 */
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { promisify } from "node:util";

const PASSWORD = "a password of this check";

/** Runs `use` with a new directory, which is removed afterwards. */
export async function withTemporary<T>(use: (directory: string) => Promise<T>): Promise<T> {
  const directory = mkdtempSync(path.join(tmpdir(), "gatehouse-release-"));
  try {
    return await use(directory);
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

const start = promisify(execFile);

async function run(
  cwd: string,
  program: string,
  flags: readonly string[],
  env: NodeJS.ProcessEnv = process.env,
): Promise<string> {
  // On Windows, npm and the command are batch files, which only a shell runs.
  const { stdout } = await start(program, flags, { cwd, env, shell: process.platform === "win32" });
  return stdout;
}

async function ask(url: string, token: string, body: unknown): Promise<string> {
  const response = await fetch(url, {
    method: "POST",
    headers: { "Content-Type": "application/json", Authorization: `Bearer ${token}` },
    body: JSON.stringify(body),
  });
  const text = await response.text();
  if (!response.ok) throw new Error(`${JSON.stringify(body)}: ${response.status} ${text}`);
  return text;
}

/**
 * Starts `serve` and uses it as the README does, until it has drained.
 *
 * @param options `flags` come before `serve`. With `inGroup`, the program is one that does not pass
 * signals on, such as npx: the whole process group gets them, as from a terminal.
 */
export async function useGateway(
  program: string,
  home: string,
  options: { flags?: readonly string[]; inGroup?: boolean; env?: NodeJS.ProcessEnv } = {},
): Promise<void> {
  const { flags = [], inGroup = false, env: environment = process.env } = options;
  const env = { ...environment, GATEHOUSE_HOME: home, GATEHOUSE_ADMIN_PASSWORD: PASSWORD };
  const child = spawn(program, [...flags, "serve", "--port", "0"], {
    cwd: path.dirname(home),
    env,
    detached: inGroup,
    stdio: ["ignore", "pipe", "pipe"],
  });
  const closed = once(child, "close");
  let output = "";
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding("utf8").on("data", (text: string) => {
      output += text;
      const [, url] = /listening on (http:\/\/127\.0\.0\.1:\d+)/.exec(output) ?? [];
      if (url !== undefined) resolve(url);
    });
  }
  child.once("exit", (code) => reject(new Error(`it ended with ${code}:\n${output}`)));
  const timer = setTimeout(() => reject(new Error(`it does not listen:\n${output}`)), 120_000);
  try {
    const url = await promise;
    const login = await ask(`${url}/login`, "", { username: "admin", password: PASSWORD });
    const token = /"token":"([^"]+)"/.exec(login)?.[1] ?? "";
    const place = { database: "main", table: "notes" };
    const columns = [{ name: "id", type: "int", primary_key: true }];
    await ask(`${url}/query`, token, { CreateTable: { ...place, columns } });
    await ask(`${url}/query`, token, { Insert: { ...place, values: [{ id: 1 }] } });
    const select = { Select: { database: "main", from: "notes", columns: ["id"] } };
    const rows = await ask(`${url}/query`, token, select);
    if (!rows.includes('"data":[{"id":1}]')) throw new Error(`found ${rows}`);
  } finally {
    clearTimeout(timer);
    if (!inGroup) child.kill("SIGTERM");
    else if (child.pid !== undefined) process.kill(-child.pid, "SIGINT");
  }
  // The output ends with the last process that writes to it.
  const [code] = await closed;
  if (!inGroup && code !== 0) throw new Error(`it ended with ${code}:\n${output}`);
}

/** @param options further options of `npm install`, such as the registry */
export async function smokeTest(tarball: string, options: readonly string[] = []): Promise<void> {
  await withTemporary(async (directory) => {
    const project = path.join(directory, "project");
    mkdirSync(project);
    writeFileSync(path.join(project, "package.json"), "{}");
    const install = ["install", "--no-audit", "--no-fund", "--loglevel=error", ...options];
    await run(project, "npm", [...install, path.resolve(tarball)]);
    const suffix = process.platform === "win32" ? ".cmd" : "";
    const program = path.join(project, "node_modules/.bin", `gatehouse${suffix}`);
    const version = (await run(project, program, ["--version"])).trim();
    if (!path.basename(tarball).endsWith(`-${version}.tgz`)) throw new Error(`found ${version}`);
    const home = path.join(directory, "home");
    const env = { ...process.env, GATEHOUSE_HOME: home };
    await run(project, program, ["config", "check"], env);
    if (existsSync(home)) throw new Error("config check has written files");
    // The gateway itself supports Linux and macOS.
    if (process.platform !== "win32") await useGateway(program, home);
  });
}

if (import.meta.main) {
  const [tarball = ""] = process.argv.slice(2);
  await smokeTest(tarball);
  process.stdout.write(`${path.basename(tarball)} works on Node ${process.version}\n`);
}
