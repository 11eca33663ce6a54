import { randomBytes } from "node:crypto";
import path from "node:path";
import { styleText } from "node:util";
import type { Command } from "commander";
import type { Level } from "../core/query/kind.ts";
import type { SectionResult, Send } from "../features/conformance/run.ts";
import { type CommonOptions, commandGroup, defineCommand } from "./options.ts";
import {
  type Cancelled,
  explain,
  FAILURE,
  onStop,
  print,
  printJson,
  UsageError,
} from "./output.ts";

interface TestOptions extends CommonOptions {
  readonly url: string;
  readonly level: Level;
  readonly authorizationFile?: string;
}

/** `--json` prints responses in full. */
const MOST_PRINTED_CHARACTERS = 4000;

function printSection({ name, cases, failures }: SectionResult): void {
  const isGood = failures.length === 0;
  const word = isGood ? styleText("green", "ok  ") : styleText("red", "FAIL");
  print(`${word}  ${name} (${isGood ? cases : `${failures.length} of ${cases} failed`})`);
  for (const { name, sent, expected, got, difference } of failures) {
    // Without terminal control sequences.
    const answer = got.answer
      .trimEnd()
      .slice(0, MOST_PRINTED_CHARACTERS)
      .replace(/\p{Cc}+/gu, " ");
    print(`  ${name}: ${difference}`);
    print(`    sent      ${sent}`);
    print(`    expected  ${expected.status} ${expected.answer}`);
    print(`    got       ${got.status} ${answer}`);
  }
}

/** Checks the URL of the server to test, and reads the file with the credential for it. */
export async function readServerCredential(
  url: string,
  file: string | undefined,
): Promise<string | undefined> {
  const { isBaseUrl } = await import("../core/config/addresses.ts");
  // The message omits the URL, which may contain a password.
  if (!isBaseUrl(url) && !/^unix:\/./.test(url)) {
    throw new UsageError("--url: allowed: http://host:port, https://host:port, unix:/path");
  }
  if (file === undefined) return undefined;
  const { readCredential } = await import("../core/config/resolve.ts");
  return readCredential(path.resolve(file), true);
}

async function runConformance({ url, level, authorizationFile, json }: TestOptions): Promise<void> {
  const authorization = await readServerCredential(url, authorizationFile);
  const { connectTo, readCases, runSection, sectionsAt } = await import(
    "../features/conformance/run.ts"
  );
  const connected = connectTo(url, authorization);
  const send: Send = (body) =>
    connected(body).catch((error: unknown) => {
      throw new Error(`no response from ${url}: ${explain(error)}`, { cause: error });
    });
  const prefix = `conformance_${randomBytes(4).toString("hex")}`;
  let stopped: Cancelled | undefined;
  // The running test finishes first, so that its databases are dropped.
  onStop((cancelled) => {
    stopped = cancelled;
  });
  const results: SectionResult[] = [];
  for (const section of sectionsAt(level, readCases().sections)) {
    if (stopped !== undefined) break;
    const result = await runSection(section, `${prefix}_${results.length}`, send);
    if (!json) printSection(result);
    results.push(result);
  }
  const failures = results.flatMap((result) => result.failures);
  const cases = results.reduce((sum, result) => sum + result.cases, 0);
  if (json) printJson({ url, level, cases, failures });
  else print(`${cases} cases at level ${level}, ${failures.length} failed`);
  if (stopped !== undefined) throw stopped;
  if (failures.length > 0) process.exitCode = FAILURE;
}

const help = `
test --json     send every example query to a database and compare the responses; creates and drops its own databases
  --url <url>   the address: http://host:port, https://host:port, unix:/path (required)
  --level <level>  the level of the query language to test
  --authorization-file <file>  a file with the Authorization header to send
`;

export function upstreamCommand(): Command {
  const test = defineCommand(
    help,
    { test: runConformance },
    { level: { choices: ["core", "full"], fallback: ["core"] } },
  );
  return commandGroup("upstream", "test a database that speaks the query language", [test]);
}
