/** Keycloak, downloaded from Maven Central and run on this machine. */
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, mkdtempSync, renameSync, rmSync } from "node:fs";
import { homedir } from "node:os";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { promisify } from "node:util";
import type { Test } from "tap";
import { freePort } from "./free-port.ts";

const run = promisify(execFile);

const KEYCLOAK_VERSION = "26.7.3";
const START_TIMEOUT_MS = 300_000;
const DOWNLOAD_TIMEOUT_MS = 600_000;
const ADMIN_PASSWORD = "administrator of a test";
/** Where browsers return to; no server listens there. */
export const REDIRECT_URI = "http://127.0.0.1/callback";

type Json = Readonly<Record<string, unknown>> | readonly unknown[];

/** A program that Keycloak needs and this machine does not have. */
export async function missingProgram(): Promise<string | undefined> {
  for (const [program, flag] of [
    ["java", "-version"],
    ["mvn", "-version"],
  ] as const) {
    const isThere = await run(program, [flag]).then(
      () => true,
      () => false,
    );
    if (!isThere) return program;
  }
  return undefined;
}

/** The directory of the distribution, in the cache of the user, filled by the first run. */
async function install(): Promise<string> {
  const cache = path.join(
    process.env.XDG_CACHE_HOME ?? path.join(homedir(), ".cache"),
    "gatehouse",
  );
  const home = path.join(cache, `keycloak-${KEYCLOAK_VERSION}`);
  if (existsSync(home)) return home;
  mkdirSync(cache, { recursive: true });
  const partial = mkdtempSync(path.join(cache, "partial-"));
  try {
    const artifact = `org.keycloak:keycloak-quarkus-dist:${KEYCLOAK_VERSION}:zip`;
    const flags = [`-Dartifact=${artifact}`, `-DoutputDirectory=${partial}`];
    const timeout = DOWNLOAD_TIMEOUT_MS;
    await run("mvn", ["-q", "-B", "dependency:unpack", ...flags], { cwd: partial, timeout });
    renameSync(path.join(partial, path.basename(home)), home);
  } finally {
    rmSync(partial, { recursive: true, force: true });
  }
  return home;
}

export class Keycloak {
  readonly url: string;
  readonly realm: string;
  #admin = { token: "", until: 0 };

  constructor(url: string, realm: string) {
    this.url = url;
    this.realm = realm;
  }

  get issuer(): string {
    return `${this.url}/realms/${this.realm}`;
  }

  async #adminToken(): Promise<string> {
    if (performance.now() < this.#admin.until) return this.#admin.token;
    const answer = await fetch(`${this.url}/realms/master/protocol/openid-connect/token`, {
      method: "POST",
      body: new URLSearchParams({
        grant_type: "password",
        client_id: "admin-cli",
        username: "admin",
        password: ADMIN_PASSWORD,
      }),
    });
    const { access_token: token } = JSON.parse(await answer.text());
    this.#admin = { token: String(token), until: performance.now() + 30_000 };
    return this.#admin.token;
  }

  async #call(method: string, place: string, content?: Json): Promise<Response> {
    const authorization = `Bearer ${await this.#adminToken()}`;
    const answer = await fetch(`${this.url}/admin${place}`, {
      method,
      headers: { authorization, "content-type": "application/json" },
      ...(content === undefined ? {} : { body: JSON.stringify(content) }),
    });
    if (!answer.ok) throw new Error(`${method} ${place}: ${answer.status} ${await answer.text()}`);
    return answer;
  }

  /** Reads from the admin API, such as `/serverinfo`. */
  async read<Content = Record<string, string>>(place: string): Promise<Content> {
    return JSON.parse(await (await this.#call("GET", place)).text());
  }

  async createRealm(): Promise<void> {
    await this.#call("POST", "/realms", { realm: this.realm, enabled: true });
  }

  /** Creates what the admin API has at a place of the realm, such as `clients`. @returns its ID */
  async create(place: string, content: Json): Promise<string> {
    const answer = await this.#call("POST", `/realms/${this.realm}/${place}`, content);
    return answer.headers.get("location")?.split("/").pop() ?? "";
  }

  async put(place: string, content: Json = {}): Promise<void> {
    await this.#call("PUT", `/realms/${this.realm}/${place}`, content);
  }

  async remove(place: string): Promise<void> {
    await this.#call("DELETE", `/realms/${this.realm}/${place}`);
  }

  /** Ends all sessions of a user, as an administrator. */
  async logOut(userId: string): Promise<void> {
    await this.#call("POST", `/realms/${this.realm}/users/${userId}/logout`);
  }

  /**
   * Fills in Keycloak's login page, as a browser does.
   *
   * @param authorization URL of an authorization request, which any relying party may have made
   * @returns where the browser is redirected, with `code` and `state`
   */
  async signIn(authorization: string, username: string, password: string): Promise<URL> {
    const page = await fetch(authorization, { redirect: "manual" });
    const cookie = page.headers
      .getSetCookie()
      .map((line) => line.split(";")[0])
      .join("; ");
    const form = await page.text();
    const action = /<form[^>]* action="([^"]*)"/.exec(form)?.[1]?.replaceAll("&amp;", "&");
    if (action === undefined) throw new Error(`no login page: ${page.status} ${form}`);
    const answer = await fetch(action, {
      method: "POST",
      redirect: "manual",
      headers: { cookie },
      body: new URLSearchParams({ username, password }),
    });
    const location = answer.headers.get("location");
    if (location === null) throw new Error(`not signed in: ${await answer.text()}`);
    return new URL(location);
  }

  /** An access token or an ID token by the authorization code flow. */
  async tokensOf(
    username: string,
    password: string,
    client: { id: string; secret: string; scope?: string },
  ): Promise<{ access_token: string; id_token: string }> {
    const endpoint = `${this.issuer}/protocol/openid-connect`;
    const request = new URLSearchParams({
      response_type: "code",
      client_id: client.id,
      redirect_uri: REDIRECT_URI,
      scope: client.scope ?? "openid",
      state: "s",
      nonce: "n",
    });
    const back = await this.signIn(`${endpoint}/auth?${request}`, username, password);
    const answer = await fetch(`${endpoint}/token`, {
      method: "POST",
      body: new URLSearchParams({
        grant_type: "authorization_code",
        redirect_uri: REDIRECT_URI,
        code: back.searchParams.get("code") ?? "",
        client_id: client.id,
        client_secret: client.secret,
      }),
    });
    const content = await answer.text();
    if (!answer.ok) throw new Error(`no token: ${content}`);
    return JSON.parse(content);
  }
}

/** Starts a server with an empty realm, which ends with the test. */
export async function startKeycloak(t: Test, realm: string): Promise<Keycloak> {
  const home = await install();
  const port = await freePort();
  const flags = ["start-dev", "--db=dev-mem", "--http-host=127.0.0.1", `--http-port=${port}`];
  // A group of processes, since the script starts Java twice: to configure and to serve.
  const child = spawn(path.join(home, "bin/kc.sh"), flags, {
    detached: true,
    env: {
      ...process.env,
      KC_BOOTSTRAP_ADMIN_USERNAME: "admin",
      KC_BOOTSTRAP_ADMIN_PASSWORD: ADMIN_PASSWORD,
      JAVA_OPTS_KC_HEAP: "-Xms64m -Xmx768m",
    },
    stdio: ["ignore", "pipe", "pipe"],
  });
  const exited = once(child, "exit");
  t.teardown(async () => {
    if (child.pid !== undefined && child.exitCode === null) process.kill(-child.pid, "SIGKILL");
    await exited;
  });
  let output = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding("utf8").on("data", (text: string) => (output += text));
  }
  const url = `http://127.0.0.1:${port}`;
  const end = performance.now() + START_TIMEOUT_MS;
  const isServing = async () =>
    fetch(`${url}/realms/master`).then(
      ({ ok }) => ok,
      () => false,
    );
  while (!(await isServing())) {
    if (child.exitCode !== null) throw new Error(`Keycloak has ended:\n${output}`);
    if (performance.now() > end) throw new Error(`Keycloak does not start:\n${output}`);
    await delay(200);
  }
  const keycloak = new Keycloak(url, realm);
  await keycloak.createRealm();
  return keycloak;
}
