import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import type { Test } from "tap";
import { parseAccessFile } from "../../src/core/access/parse.ts";
import type { Snapshot } from "../../src/core/access/snapshot.ts";
import { hashPassword } from "../../src/core/identity/password.ts";
import { grant, user } from "../access/kit.ts";
import { type GatewaySetup, openGatewaySetup } from "../gateway/kit.ts";
import { ask } from "../kit/client.ts";
import { eventually } from "../kit/eventually.ts";
import { type RunOptions, type TestGateway, temporaryHome } from "../kit/gateway.ts";
import { insert, queryHeaders } from "../kit/queries.ts";
import { runWarm } from "../kit/warm-command.ts";

const costs = { memory: 64, time: 1, parallelism: 1 };

export function passwordOf(username: string): string {
  return `${username} password`;
}

export function cheapHash(password: string): Promise<string> {
  return hashPassword(password, costs);
}

/** An access file of grants in the form `user database role`; all users have a password. */
async function staffFile(grants: readonly string[]): Promise<string> {
  const entries = grants.map((entry) => entry.split(" "));
  const names = new Set(entries.map(([name = ""]) => name));
  const users = await Promise.all(
    Array.from(names, async (name) =>
      user(name, `password_hash = "${await cheapHash(passwordOf(name))}"`),
    ),
  );
  const acl = entries.map(([name = "", database = "", role = ""]) => grant(name, database, role));
  return [...users, ...acl].join("");
}

export async function staffedHome(t: Test, grants: readonly string[], more = ""): Promise<string> {
  const home = temporaryHome(t);
  const text = `${await staffFile(grants)}${more}`;
  writeFileSync(path.join(home, "access_control.toml"), text, { mode: 0o600 });
  return home;
}

/** A gateway with these grants, and its upstream. */
export async function openStaffed(
  t: Test,
  grants: readonly string[],
  options: RunOptions & { more?: string } = {},
): Promise<GatewaySetup> {
  const { more, ...rest } = options;
  return openGatewaySetup(t, { home: await staffedHome(t, grants, more), ...rest });
}

export function tokenOf(gateway: TestGateway, name: string, database?: string): Promise<string> {
  return gateway.login(name, passwordOf(name), database);
}

export function textOf(gateway: TestGateway): string {
  return readFileSync(gateway.accessFile, "utf8");
}

export function snapshotOn(gateway: TestGateway): Snapshot {
  return parseAccessFile(textOf(gateway), gateway.accessFile);
}

/** Resolves when the access file is in force. @param connections enough to reach every worker */
export async function untilInForce(gateway: TestGateway, connections = 1): Promise<void> {
  const { version } = snapshotOn(gateway);
  const isInForce = async () => {
    const { body } = await gateway.request("/readyz", { headers: { connection: "close" } });
    return body.access_version === version && body.access_file === "fresh";
  };
  await eventually("the file is in force", async () => {
    const answers = await Promise.all(Array.from({ length: connections }, isInForce));
    return answers.every(Boolean);
  });
}

export async function editInForce(
  gateway: TestGateway,
  change: (text: string) => string,
  connections?: number,
): Promise<void> {
  await gateway.edit(change);
  await untilInForce(gateway, connections);
}

export async function putInForce(gateway: TestGateway, text: string): Promise<void> {
  writeFileSync(gateway.accessFile, text);
  await untilInForce(gateway);
}

/**
 * Opens a connection with a token of bob's that expires in three seconds. On a busy machine it tries
 * again with longer ones. @returns the connection and `exp` of the token
 */
export async function openBriefly<Opened>(
  gateway: TestGateway,
  open: (token: string) => Promise<Opened>,
): Promise<{ opened: Opened; exp: number }> {
  for (let seconds = 3; ; seconds *= 2) {
    const flags = ["token", "issue", "bob", "--expires", `${seconds}s`];
    const token = (await runWarm(gateway.home, flags)).stdout.trim();
    const { exp } = JSON.parse(Buffer.from(token.split(".")[1] ?? "", "base64url").toString());
    try {
      return { opened: await open(token), exp };
    } catch (error) {
      if (seconds > 60) throw error;
    }
  }
}

export async function soon(t: Test, what: string, isSo: () => boolean | Promise<boolean>) {
  await eventually(what, isSo);
  t.pass(what);
}

/** The error code of an Insert into `main` on a new connection; undefined if it succeeds. */
export async function insertRefusal(gateway: TestGateway, token: string) {
  const headers = queryHeaders(token);
  const answer = await ask(`${gateway.url}/query`, { method: "POST", headers, body: insert });
  return JSON.parse(answer.body.toString()).code;
}

export async function succeed(answer: Promise<{ status: number; text: string }>): Promise<void> {
  const { status, text } = await answer;
  if (status !== 200) throw new Error(`${status}: ${text}`);
}
