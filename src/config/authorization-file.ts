import { closeSync, constants, fstatSync, openSync, readFileSync } from "node:fs";
import { permissionProblem } from "../files/permissions.ts";
import { isHeaderValue } from "./headers.ts";

/** The credential that a file holds, or what the file would have to be. */
export type AuthorizationFile = { readonly value: string } | { readonly refused: string };

/**
 * Reads the upstream's credential, without the space around it.
 * @param path absolute
 * @param checkReaders whether a file that others may read is refused
 */
export function readAuthorizationFile(path: string, checkReaders: boolean): AuthorizationFile {
  let descriptor: number;
  try {
    // Without O_NONBLOCK, a pipe would keep the start waiting for ever.
    descriptor = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  } catch (error) {
    return { refused: `a file that can be read (${codeOf(error)})` };
  }
  try {
    return readOpened(descriptor, path, checkReaders);
  } finally {
    closeSync(descriptor);
  }
}

function readOpened(descriptor: number, path: string, checkReaders: boolean): AuthorizationFile {
  const stats = fstatSync(descriptor);
  if (!stats.isFile()) return { refused: "a regular file" };
  const problem = permissionProblem(path, stats, checkReaders);
  if (problem !== undefined) {
    const { reason, remedy } = problem;
    return { refused: `a file that is kept from others; ${reason}, so run: ${remedy}` };
  }
  const value = readFileSync(descriptor, "utf8").trim();
  if (!isHeaderValue(value)) return { refused: "a file of one line of visible ASCII characters" };
  return { value };
}

function codeOf(error: unknown): string {
  return error instanceof Error && "code" in error ? String(error.code) : "unknown error";
}
