import { readFileSync, statSync } from "node:fs";

/** The name of a user of the system, or `uid 1000` where it has none. */
export function nameOfUser(uid: number): string {
  try {
    // passwd(5): name, password, uid.
    const users = readFileSync("/etc/passwd", "utf8")
      .split("\n")
      .map((line) => line.split(":"));
    const [name] = users.find(([, , id]) => id === String(uid)) ?? [];
    return name ?? `uid ${uid}`;
  } catch {
    return `uid ${uid}`;
  }
}

/** The system's user that a file belongs to; `unknown` for one that is gone. */
export function ownerOf(file: string): string {
  try {
    return nameOfUser(statSync(file).uid);
  } catch {
    return "unknown";
  }
}
