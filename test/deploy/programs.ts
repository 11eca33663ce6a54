/** Optional programs of the machine, and the files in `deploy/`. */
import { accessSync, constants, readFileSync } from "node:fs";
import path from "node:path";

const directory = path.join(import.meta.dirname, "../../deploy");
const places = ["/usr/sbin", "/usr/local/sbin", "/sbin"];

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

export function deployedPath(name: string): string {
  return path.join(directory, name);
}

export function deployed(name: string): string {
  return readFileSync(deployedPath(name), "utf8");
}

/**
 * Replaces each passage everywhere.
 *
 * @throws Error if one does not occur; the file has changed, so the test must change too
 */
export function fill(text: string, passages: Readonly<Record<string, string>>): string {
  return Object.entries(passages).reduce((filled, [passage, replacement]) => {
    if (!filled.includes(passage)) throw new Error(`missing passage: ${JSON.stringify(passage)}`);
    return filled.replaceAll(passage, () => replacement);
  }, text);
}
