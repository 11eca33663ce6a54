import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { readFile, rename, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import type { Test } from "tap";
import { type AnswerHeaders, plainFetch } from "./plain-fetch.ts";
import { Service } from "./process.ts";

/** Cheap hashes, to save time. */
const cheapCosts = "argon2_memory_cost = 64\nargon2_time_cost = 1\nargon2_parallelism = 1";
export const ADMIN_PASSWORD = "correct horse";

export interface Answer {
  status: number;
  headers: AnswerHeaders;
  text: string;
  body: Record<string, unknown>;
}

export interface RunOptions {
  /** Sections and keys of gateway.toml; `[auth]` must be given by `auth`. */
  config?: string;
  auth?: string;
  upstream?: string;
  home?: string;
  env?: NodeJS.ProcessEnv;
  /** By default a free port. */
  port?: number;
  limits?: string;
  /** A copy of the project to run. */
  root?: string;
  /** A program with flags that runs it, such as `nsenter`. */
  through?: readonly string[];
  flags?: readonly string[];
}

/** A service directory that is removed when the test ends. */
export function temporaryHome(t: Pick<Test, "teardown">): string {
  const home = mkdtempSync(path.join(tmpdir(), "gatehouse-test-"));
  chmodSync(home, 0o700);
  t.teardown(() => rmSync(home, { recursive: true, force: true }));
  return home;
}

/** Replaces a file by a rename, as most editors do. */
export async function putInPlace(file: string, text: string): Promise<void> {
  await writeFile(`${file}.edited`, text, { mode: 0o600 });
  await rename(`${file}.edited`, file);
}

export class TestGateway {
  readonly home: string;
  readonly service: Service;
  readonly url: string;

  constructor(home: string, service: Service, url: string) {
    this.home = home;
    this.service = service;
    this.url = url;
  }

  get accessFile(): string {
    return path.join(this.home, "access_control.toml");
  }

  async request(route: string, init: RequestInit = {}): Promise<Answer> {
    const { status, headers, text } = await plainFetch(`${this.url}${route}`, init);
    let body: Record<string, unknown> = {};
    try {
      body = JSON.parse(text);
    } catch {
      // Not every answer is JSON.
    }
    return { status, headers, text, body };
  }

  async send(method: string, route: string, content: unknown, token?: string): Promise<Answer> {
    const headers: Record<string, string> = { "content-type": "application/json" };
    if (token !== undefined) headers.authorization = `Bearer ${token}`;
    const body = typeof content === "string" ? content : JSON.stringify(content);
    return this.request(route, { method, headers, body });
  }

  async get(route: string, token?: string): Promise<Answer> {
    return this.send("GET", route, undefined, token);
  }

  async query(content: unknown, token?: string): Promise<Answer> {
    return this.send("POST", "/query", content, token);
  }

  async login(username = "admin", password = ADMIN_PASSWORD, database?: string): Promise<string> {
    const answer = await this.send("POST", "/login", { username, password, database });
    if (answer.status !== 200) throw new Error(`login of ${username}: ${answer.text}`);
    return String(answer.body.token);
  }

  /** Creates a user with the password `<username> password` and a role, and logs it in. */
  async addUser(username: string, role: string, database = "main"): Promise<string> {
    const password = `${username} password`;
    const user = { username, password, role, database };
    const answer = await this.send("POST", "/api/users", user, await this.login());
    if (answer.status !== 201) throw new Error(`user ${username}: ${answer.text}`);
    return this.login(username, password);
  }

  async edit(change: (text: string) => string): Promise<void> {
    await putInPlace(this.accessFile, change(await readFile(this.accessFile, "utf8")));
  }
}

/** The audit line of a request, once it has ended. */
export async function auditOf(
  { service }: TestGateway,
  answer: Answer,
): Promise<Record<string, unknown>> {
  const requestId = answer.headers.get("x-request-id");
  return service.logged((line) => line.audit === true && line.requestId === requestId);
}

export function writeConfiguration(home: string, options: RunOptions): void {
  const upstream =
    options.upstream === undefined ? "" : `[upstream]\nurl = "${options.upstream}"\n`;
  const auth = `[auth]\n${cheapCosts}\n${options.auth ?? ""}\n`;
  writeFileSync(path.join(home, "gateway.toml"), `${auth}${upstream}${options.config ?? ""}`);
}

/** Several workers need a database that is not SQLite: by default, the reference upstream. */
async function withUpstream(t: Pick<Test, "teardown">, options: RunOptions): Promise<RunOptions> {
  const { upstream, config = "" } = options;
  if (upstream !== undefined || config.includes("[upstream]") || !/^workers = [2-9]/m.test(config))
    return options;
  const reference = { auth: "enabled = false", config: "[mcp]\nenabled = false\n" };
  const { url } = await startGateway(t, reference);
  return { ...options, upstream: url, config: `${config}\n[query]\nlevel = "full"\n` };
}

export async function startGateway(
  t: Pick<Test, "teardown">,
  options: RunOptions = {},
): Promise<TestGateway> {
  const home = options.home ?? temporaryHome(t);
  writeConfiguration(home, await withUpstream(t, options));
  const env = { GATEHOUSE_ADMIN_PASSWORD: ADMIN_PASSWORD, ...options.env };
  const limit = ["sh", "-c", `ulimit ${options.limits}; exec "$0" "$@"`];
  const through = options.limits === undefined ? options.through : limit;
  const flags = ["serve", "--port", String(options.port ?? 0), ...(options.flags ?? [])];
  const service = new Service(home, flags, env, through, options.root);
  t.teardown(() => service.stop("SIGKILL"));
  const { url } = await service.logged(({ msg }) => String(msg).startsWith("listening on"));
  return new TestGateway(home, service, String(url));
}
