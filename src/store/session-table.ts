import { type SessionRegister, usualLimits } from "../mcp/proxy/sessions.ts";
import { ownersOf } from "../mcp/proxy/task-notes.ts";
import type { Database, Row } from "./database.ts";
import type { Replica } from "./replica.ts";
import { keyOf } from "./secrets.ts";

const TIMEOUT_MS = 3000;
/** Milliseconds for which what the store has said of a session is believed: its user never changes. */
const BELIEVED_MS = 30_000;
/** Sessions of which this process remembers that; past it they are asked for again. */
const MOST_BELIEVED = 10_000;

const { most, mostPerUser, idle } = usualLimits;
const live = `used > clock_timestamp() - interval '${idle / 1000} seconds'`;
const openSql = `insert into gatehouse.mcp_sessions as s (key, kind, username, used)
  values ($1, $2, $3, clock_timestamp()) on conflict (key) do update set used = excluded.used
  where s.kind = excluded.kind and s.username = excluded.username returning key`;
const useSql = `update gatehouse.mcp_sessions set used = clock_timestamp()
  where key = $1 and kind = $2 and username = $3 and ${live} returning key`;
const endSql = "delete from gatehouse.mcp_sessions where key = $1 and kind = $2";
/** Of a user's own, and of all, those that were idle longest make room; and so do those that are over. */
const roomSql = `delete from gatehouse.mcp_sessions where key in (
  (select key from gatehouse.mcp_sessions where not ${live} order by used limit 100) union all
  (select key from gatehouse.mcp_sessions where username = $1 and kind = $2
    order by used desc offset ${mostPerUser}) union all
  (select key from gatehouse.mcp_sessions where kind = $2 order by used desc offset ${most}))`;

/** Whose the sessions, or the tasks, of a foreign MCP server are, in the store. */
function registerOf(kind: string, replica: Replica, database: Database): SessionRegister {
  const believed = new Map<string, { readonly username: string; readonly until: number }>();

  async function query(sql: string, values: readonly unknown[]): Promise<Row[]> {
    replica.requireReached();
    return database.query(sql, values, TIMEOUT_MS);
  }

  function believe(key: string, username: string): true {
    if (believed.size >= MOST_BELIEVED) believed.clear();
    believed.set(key, { username, until: performance.now() + BELIEVED_MS });
    return true;
  }

  return {
    async open(id, username) {
      const key = keyOf(id);
      const [opened] = await query(openSql, [key, kind, username]);
      await query(roomSql, [username, kind]);
      return opened !== undefined && believe(key, username);
    },
    async use(id, username) {
      const key = keyOf(id);
      const known = believed.get(key);
      if (known !== undefined && performance.now() < known.until)
        return known.username === username;
      believed.delete(key);
      const [used] = await query(useSql, [key, kind, username]);
      return used !== undefined && believe(key, username);
    },
    end(id) {
      const key = keyOf(id);
      believed.delete(key);
      // One that is not forgotten now is once it was idle; the server behind knows that it is over.
      query(endSql, [key, kind]).catch(() => {});
    },
  };
}

/**
 * Whose the sessions and tasks of a foreign MCP server are, in the store: one that began at one
 * replica is its user's at every other.
 */
export function sessionsInStore(replica: Replica, database: Database): SessionRegister {
  return ownersOf(registerOf("session", replica, database), registerOf("task", replica, database));
}
