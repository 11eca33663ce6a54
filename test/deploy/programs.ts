/** Programs that a machine may have, and the files that an operator copies. */
import { accessSync, constants, readFileSync } from "node:fs";
import path from "node:path";

const directory = path.join(import.meta.dirname, "../../deploy");
const places = ["/usr/sbin", "/usr/local/sbin", "/sbin"];

/** Where a program is; undefined if this machine has none of that name. */
export function findProgram(name: string): string | undefined {
  const all = [...(process.env.PATH ?? "").split(path.delimiter), ...places];
  return all
    .map((place) => path.join(place, name))
    .find((file) => {
      try {
        accessSync(file, constants.X_OK);
        return true;
      } catch {
        return false;
      }
    });
}

/** The path of a file in `deploy/`. */
export function deployedPath(name: string): string {
  return path.join(directory, name);
}

/** The text of a file in `deploy/`. */
export function deployed(name: string): string {
  return readFileSync(deployedPath(name), "utf8");
}

/**
 * A text with each of these passages replaced, everywhere.
 *
 * @throws Error if one of them does not occur: then the file has changed, and the test must
 */
export function fill(text: string, passages: Readonly<Record<string, string>>): string {
  return Object.entries(passages).reduce((filled, [passage, replacement]) => {
    if (!filled.includes(passage)) throw new Error(`nothing like ${JSON.stringify(passage)}`);
    return filled.replaceAll(passage, () => replacement);
  }, text);
}
