/**
 * Answers statements with their rows, as an application's server would. Its argument is the URL of a
 * database; it sends its parent the port.
 */
import { createServer } from "node:http";
import { DatabaseSync } from "node:sqlite";
import { text } from "node:stream/consumers";
import { createConnection } from "mysql2/promise";
import { Client } from "pg";

/** Opens a connection and returns how to run a statement on it. */
const drivers: Readonly<Record<string, (url: string) => Promise<(words: string) => unknown>>> = {
  async "sqlite:"(url) {
    const database = new DatabaseSync(url.slice("sqlite:".length));
    return (words) => database.prepare(words).all();
  },
  async "postgres:"(url) {
    const client = new Client({ connectionString: url });
    await client.connect();
    return async (words) => (await client.query(words)).rows;
  },
  async "mysql:"(url) {
    const connection = await createConnection(url);
    return async (words) => (await connection.query(words))[0];
  },
};

const [, , url = ""] = process.argv;
const run = await drivers[new URL(url).protocol]?.(url);

const server = createServer(async (request, response) => {
  const statements: string[] = JSON.parse(await text(request));
  const rows: unknown[] = [];
  for (const words of statements) rows.push(await run?.(words));
  response.end(JSON.stringify(rows));
});
server.listen(0, "127.0.0.1", () => process.send?.(server.address()));
process.on("disconnect", () => process.exit());
