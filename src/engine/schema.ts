import { isPlainName } from "../query/names.ts";
import { EngineRefusal } from "./refusal.ts";
import type { SchemaPlace } from "./store.ts";

/** The route that tells what databases, tables and columns there are. */
const root = "/schema";

/** True for `/schema` and all that lies below. */
export function isSchemaPath(path: string): boolean {
  return path === root || path.startsWith(`${root}/`);
}

/**
 * What `/schema`, `/schema/<database>` or `/schema/<database>/<table>` asks about.
 *
 * Throws `EngineRefusal` `not_found` for a path with more names or with other than plain ones.
 */
export function readSchemaPath(path: string): SchemaPlace {
  const names = path.split("/").slice(2);
  if (names.length > 2 || !names.every(isPlainName)) {
    throw new EngineRefusal("not_found", "The engine has no such route");
  }
  const [database, table] = names;
  return { database, table };
}
