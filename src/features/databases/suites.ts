import { randomBytes } from "node:crypto";
import { writeFile } from "node:fs/promises";
import type { OutgoingHttpHeaders } from "node:http";
import path from "node:path";
import { errorMessage } from "../../core/base/client-error.ts";
import { renderTable, renderValue } from "../../core/base/toml.ts";
import { hashPassword } from "../../core/identity/password.ts";
import { parseIfJson } from "../../core/json/exact.ts";
import { askTarget } from "../../core/upstream/health-check.ts";
import { parseTarget, type UpstreamTarget } from "../../core/upstream/target.ts";
import { isObject, type Json } from "./preset.ts";
import {
  described,
  LONGEST_FOUND,
  type Send,
  type Suite,
  type SuiteAnswer,
  type SuiteCheck,
  type SuiteGrant,
  SuiteRun,
} from "./suite.ts";

export interface SuiteServer {
  /** `http://host:port`, `https://host:port` or `unix:/path`. */
  readonly url: string;
  readonly credential: { readonly header: string; readonly value: string } | undefined;
}

const ADMINISTRATOR = "admin";
const BASE_PATH = "/_gatehouse";
/** Cheap, since the password exists only while the suite runs. */
const costs = { memory: 64, time: 1, parallelism: 1 };

function usersOf({ grants }: Suite): ReadonlySet<string> {
  return new Set([ADMINISTRATOR, ...grants.map(({ user }) => user)]);
}

/**
 * Writes the files of a gateway with the users and grants of a suite.
 *
 * @param home an empty directory that only this user may read
 * @returns the password of every user
 */
export async function writeSuiteFiles(
  home: string,
  suite: Suite,
  { url, credential }: SuiteServer,
): Promise<string> {
  const password = randomBytes(15).toString("base64url");
  const hash = await hashPassword(password, costs);
  const owner: SuiteGrant = { user: ADMINISTRATOR, database: "*", role: "Owner" };
  const access = [
    ...Array.from(usersOf(suite), (username) =>
      renderTable("users", { username, password_hash: hash }),
    ),
    ...[owner, ...suite.grants].map(({ user, ...grant }) =>
      renderTable("acl", { username: user, ...grant }),
    ),
  ];
  const configuration = [
    "[server]\nport = 0",
    `[auth]\nargon2_memory_cost = ${costs.memory}\nargon2_time_cost = ${costs.time}`,
    `argon2_parallelism = ${costs.parallelism}`,
    "[mcp]\nenabled = false",
    `[upstream]\nurl = ${renderValue(url)}\npreset = ${renderValue(suite.preset.name)}`,
  ];
  const write = (name: string, text: string) =>
    writeFile(path.join(home, name), text, { mode: 0o600 });
  if (credential !== undefined) {
    configuration.push(
      `credential = { header = ${renderValue(credential.header)}, file = "secret" }`,
    );
    await write("secret", credential.value);
  }
  await write("gateway.toml", `${configuration.join("\n")}\n`);
  await write("access_control.toml", access.join("\n"));
  return password;
}

/** Paths are sent as they are: a URL would resolve their dot segments. */
function sendTo(target: UpstreamTarget, credential?: SuiteServer["credential"]): Send {
  return async ({ method, path, headers = {}, body }) => {
    const bytes = body instanceof Buffer ? body : Buffer.from(JSON.stringify(body ?? null));
    const sent: OutgoingHttpHeaders = { accept: "application/json" };
    if (body !== undefined) {
      sent["content-type"] = "application/json";
      sent["content-length"] = String(bytes.length);
    }
    if (credential !== undefined) sent[credential.header] = credential.value;
    for (const [name, value] of Object.entries(headers)) {
      sent[name.toLowerCase()] = typeof value === "string" ? value : [...value];
    }
    const { status, text } = await askTarget(target, {
      method,
      path,
      headers: sent,
      ...(body === undefined ? {} : { body: bytes }),
    });
    return { status, text, json: parseIfJson<Json>(text) };
  };
}

interface SuiteOptions {
  readonly suite: Suite;
  readonly server: SuiteServer;
  /** The gateway's URL, without its base path. */
  readonly gateway: string;
  readonly password: string;
  report(check: SuiteCheck): void;
  /** Aborted to stop after the current request. The suite then removes its databases. */
  readonly signal: AbortSignal;
}

/** @throws Error if the gateway or the server cannot be used */
export async function runSuite(run: SuiteOptions): Promise<void> {
  const { suite, server, gateway, password, report, signal } = run;
  const ask = sendTo(parseTarget(server.url), server.credential);
  const direct: Send = (request) =>
    ask(request).catch((error: unknown) => {
      throw new Error(`no response from ${server.url}: ${errorMessage(error)}`, { cause: error });
    });
  const { name, version } = suite.preset;
  const answer = await direct({ method: "GET", path: version.path });
  if (answer.json === undefined || version.read(answer.json) === undefined) {
    const reason = `GET ${version.path}: ${described(answer).slice(0, LONGEST_FOUND).trimEnd()}`;
    const remedy = "name another with --url, or its credential with --credential-file";
    throw new Error(`${server.url} does not answer as ${name} does: ${remedy} (${reason})`);
  }
  const open = sendTo(parseTarget(gateway));
  const tokens = new Map<string, string>();
  for (const username of usersOf(suite)) {
    const body = { username, password };
    const { status, json } = await open({ method: "POST", path: `${BASE_PATH}/login`, body });
    const token = isObject(json) ? json.token : undefined;
    if (typeof token !== "string") throw new Error(`login of ${username}: status ${status}`);
    tokens.set(username, token);
  }
  const sendAs =
    (user: string): Send =>
    async (request) => {
      signal.throwIfAborted();
      const token = tokens.get(user);
      const authorization = token === undefined ? {} : { authorization: `Bearer ${token}` };
      const headers = { ...authorization, ...request.headers };
      return open({ ...request, headers }).catch((error: unknown): SuiteAnswer => {
        return { status: 0, text: errorMessage(error), json: undefined };
      });
    };
  await suite.clean(direct);
  try {
    await suite.run(new SuiteRun(suite.names, direct, sendAs, report));
  } finally {
    await suite.clean(direct);
  }
}
