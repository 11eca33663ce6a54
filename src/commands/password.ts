import { text } from "node:stream/consumers";
import password from "@inquirer/password";
import { requireUsablePassword } from "../identity/password.ts";
import { UsageError } from "./outcome.ts";

/** The first line of standard input. */
async function readFromStandardInput(): Promise<string> {
  const [line = ""] = (await text(process.stdin)).split(/\r?\n/, 1);
  return line;
}

function checked(candidate: string): true | string {
  try {
    requireUsablePassword(candidate);
    return true;
  } catch (error) {
    return error instanceof Error ? error.message : "unusable";
  }
}

/** Asks on the terminal, unseen and twice. */
async function ask(username: string): Promise<string> {
  const first = await password({ message: `Password for ${username}:`, validate: checked });
  await password({
    message: "The same again:",
    validate: (second) => second === first || "The two are not the same",
  });
  return first;
}

/**
 * A new password from standard input (for scripts) or from the terminal.
 *
 * @throws UsageError without a terminal; Refusal if the password cannot be used
 */
export async function readNewPassword(username: string, fromStdin: boolean): Promise<string> {
  if (!fromStdin && !process.stdin.isTTY) {
    throw new UsageError("there is no terminal to ask on: give the password with --password-stdin");
  }
  const chosen = fromStdin ? await readFromStandardInput() : await ask(username);
  requireUsablePassword(chosen);
  return chosen;
}
