import type { Key } from "node:readline";
import { buffer } from "node:stream/consumers";
import type { Command } from "commander";
import { decodeUtf8 } from "../core/base/files/guarded.ts";
import type { Configuration } from "../core/config/schema.ts";
import { configuredCosts } from "../core/identity/hash.ts";
import { hashPassword, openPasswordRule, type PasswordRule } from "../core/identity/password.ts";
import { type CommonOptions, defineCommand, loadFor } from "./options.ts";
import { Cancelled, explain, print, UsageError } from "./output.ts";

function check(rule: PasswordRule, candidate: string): true | string {
  try {
    rule(candidate);
    return true;
  } catch (error) {
    return explain(error);
  }
}

/** @throws Cancelled on Ctrl-C, on Ctrl-D, or if the terminal closes */
async function askHidden(
  message: string,
  validate: (candidate: string) => true | string = () => true,
): Promise<string> {
  const { default: password } = await import("@inquirer/password");
  const cancel = new AbortController();
  const onEnd = () => cancel.abort();
  // The prompt itself ignores Ctrl-D.
  const onKey = (_text: string | undefined, { ctrl, name }: Key) => {
    if (ctrl && name === "d") cancel.abort();
  };
  process.stdin.on("keypress", onKey).once("end", onEnd);
  try {
    // The prompt goes to standard error, since standard output may be redirected to a file.
    const context = { output: process.stderr, signal: cancel.signal };
    return await password({ message, validate, toggleMask: false }, context);
  } catch (error) {
    const isCancel = error instanceof Error && /^(?:Abort|Exit)PromptError$/.test(error.name);
    throw isCancel ? new Cancelled() : error;
  } finally {
    process.stdin.off("keypress", onKey).off("end", onEnd);
  }
}

async function askTwice(question: string, rule: PasswordRule): Promise<string> {
  for (;;) {
    const first = await askHidden(question, (candidate) => check(rule, candidate));
    if ((await askHidden("Repeat the password:")) === first) return first;
    process.stderr.write("The passwords differ; enter both again.\n");
  }
}

/** The first line. @throws Error if it is not UTF-8: no login could send these bytes */
async function readPassword(): Promise<string> {
  const input = decodeUtf8("standard input", await buffer(process.stdin));
  const [line = ""] = input.replace(/^\ufeff/, "").split(/\r?\n/, 1);
  return line;
}

/** @throws UsageError without a terminal; Cancelled; Refusal if the password cannot be used */
export async function readNewHash(
  question: string,
  { passwordStdin }: CommonOptions,
  configuration: Configuration,
): Promise<string> {
  if (!passwordStdin && !process.stdin.isTTY) {
    throw new UsageError(
      "standard input is not a terminal: pass the password with --password-stdin",
    );
  }
  const rule = await openPasswordRule(configuration);
  const chosen = passwordStdin ? await readPassword() : await askTwice(question, rule);
  rule(chosen);
  return hashPassword(chosen, configuredCosts(configuration));
}

const help = `
hash-password --password-stdin  print the hash of a password, for the access file
`;

export function hashPasswordCommand(): Command {
  const run = async (options: CommonOptions) =>
    print(await readNewHash("Password:", options, loadFor(options).configuration));
  return defineCommand(help, { "hash-password": run });
}
