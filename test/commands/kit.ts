import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import root, { type Test } from "tap";
import { parseAccessFile } from "../../src/core/access/parse.ts";
import type { Snapshot } from "../../src/core/access/snapshot.ts";
import { grant, user } from "../access/kit.ts";
import { temporaryHome } from "../kit/gateway.ts";
import type { CommandResult } from "../kit/process.ts";
import { runWarm } from "../kit/warm-command.ts";

export const program = fileURLToPath(new URL("../../gatehouse", import.meta.url));

const configuration = `[auth]
argon2_memory_cost = 64
argon2_time_cost = 1
argon2_parallelism = 1
`;

export const people = [
  "# who may do what\n",
  user("root"),
  user("alice"),
  user("bob", 'email = "bob@example.com"\ndisabled = true'),
  grant("root", "*", "Owner"),
  grant("alice", "main", "ReadWrite"),
  grant("alice", "*", "ReadOnly"),
  grant("bob", "main", "ReadOnly"),
].join("");

export class Installation {
  readonly home: string;

  constructor(home: string) {
    this.home = home;
  }

  get accessFile(): string {
    return path.join(this.home, "access_control.toml");
  }

  get text(): string {
    return readFileSync(this.accessFile, "utf8");
  }

  get snapshot(): Snapshot {
    return parseAccessFile(this.text, this.accessFile);
  }

  /** @param rest standard input, or further arguments that contain spaces */
  run(command: string, rest: string | readonly string[] = ""): Promise<CommandResult> {
    const [more, input] = typeof rest === "string" ? [[], rest] : [rest, ""];
    return runWarm(this.home, [...command.split(" "), ...more], input);
  }

  async runAll(commands: readonly string[]): Promise<CommandResult[]> {
    const results: CommandResult[] = [];
    for (const command of commands) results.push(await this.run(command));
    return results;
  }
}

/** A service directory in which nothing was ever started. */
export function installNothing(t: Test): Installation {
  const home = temporaryHome(t);
  writeFileSync(path.join(home, "gateway.toml"), configuration, { mode: 0o600 });
  return new Installation(home);
}

export function install(t: Test, text = people): Installation {
  const installation = installNothing(t);
  writeFileSync(installation.accessFile, text, { mode: 0o600 });
  return installation;
}

/** Runs a test of commands that have an access file of their own. */
export function installed(
  name: string,
  body: (t: Test, gatehouse: Installation) => Promise<unknown>,
  text = people,
): void {
  root.test(name, (t) => body(t, install(t, text)));
}

export type Refused = readonly [command: string, code: number, stderr: RegExp, input?: string];

/** Runs commands that have to fail, and checks that they change nothing and do not echo their input. */
export async function checkRefusals(t: Test, gatehouse: Installation, cases: readonly Refused[]) {
  const before = gatehouse.text;
  for (const [command, code, stderr, input = ""] of cases) {
    const result = await gatehouse.run(command, input);
    t.match(result, { code, stdout: "", stderr }, command.slice(0, 60));
    if (input.trim() !== "")
      t.notOk(result.stderr.includes(input.trim()), "the input is not echoed");
  }
  t.equal(gatehouse.text, before, "the access file is unchanged");
}

/** The result of a command that succeeds and prints only to standard output. */
export function done(...lines: string[]): CommandResult {
  return { code: 0, stdout: lines.map((line) => `${line}\n`).join(""), stderr: "" };
}

export function failed(code: number, ...lines: string[]): CommandResult {
  return { code, stdout: "", stderr: lines.map((line) => `gatehouse: ${line}\n`).join("") };
}
