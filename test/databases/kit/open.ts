import type { Test } from "tap";
import { type PresetName, presetNames } from "../../../src/core/config/upstream.ts";
import { presets } from "../../../src/features/databases/presets.ts";
import { staffedHome } from "../../journeys/staff.ts";
import {
  auditOf,
  type RunOptions,
  startGateway,
  type TestGateway,
  temporaryHome,
} from "../../kit/gateway.ts";
import { measuredEnvironment } from "../../kit/loop-time.ts";
import type { ReceivedRequest, RecordingUpstream } from "../../kit/upstream.ts";
import { runWarm } from "../../kit/warm-command.ts";

export interface OpenOptions extends Pick<RunOptions, "auth"> {
  /** As `user database role`. */
  readonly grants: readonly string[];
  /** More of the access file. */
  readonly more?: string;
  /** Keys of `[upstream]`, and further sections. */
  readonly config?: string;
  /** True to measure its event loop (`longestTurn`). */
  readonly isMeasured?: boolean;
}

interface OpenedPreset {
  readonly gateway: TestGateway;
  /** @returns a login token */
  login(username: string, database?: string): Promise<string>;
}

/** A gateway with a preset in front of a server. */
export async function openPreset(
  t: Test,
  preset: PresetName,
  upstream: string,
  { grants, more, config = "", auth, isMeasured = false }: OpenOptions,
): Promise<OpenedPreset> {
  const home = await staffedHome(t, grants, more);
  const gateway = await startGateway(t, {
    home,
    env: isMeasured ? measuredEnvironment(home) : {},
    upstream,
    config: `preset = "${preset}"\n${config}`,
    ...(auth === undefined ? {} : { auth }),
  });
  return {
    gateway,
    async login(username, database) {
      const body = { username, password: `${username} password`, database };
      const answer = await gateway.send("POST", "/_gatehouse/login", body);
      return String(answer.body.token);
    },
  };
}

/** `gatehouse preset test` finds nothing. @param least how many checks the suite has at least */
export async function checkSuite(
  t: Test,
  preset: PresetName,
  url: string,
  least: number,
  more: readonly string[] = [],
): Promise<void> {
  const flags = ["preset", "test", preset, "--url", url, "--json", ...more];
  const { code, stdout, stderr } = await runWarm(temporaryHome(t), flags);
  t.equal(code, 0, stderr);
  const { checks } = JSON.parse(stdout);
  t.ok(checks.length > least, "it checks something");
  for (const { title, holds, found } of checks) if (!holds) t.fail(title, { found });
}

/** The audit has these rights for each request of a user. */
export async function checkRights(
  t: Test,
  { gateway, login }: OpenedPreset,
  user: string,
  rows: readonly (readonly [method: string, path: string, body: unknown, rights: string[]])[],
): Promise<void> {
  const token = await login(user);
  for (const [method, path, body, rights] of rows) {
    const { operations } = await auditOf(gateway, await gateway.send(method, path, body, token));
    const done = Array.isArray(operations) ? operations.map(({ operation }) => operation) : [];
    t.same(done, rights, `${method} ${path} ${JSON.stringify(body)}`);
  }
}

const found = await Promise.all(presetNames.map((name) => presets[name]()));
const versionPaths = found.map(({ version }) => version.path);

/** Requests that arrived for clients, without those of the gateway at its start. */
export function taken(upstream: RecordingUpstream): ReceivedRequest[] {
  return upstream.take().filter(({ url }) => !versionPaths.includes(url));
}
