/**
 * Answers statements with their rows, as an application's server would. Its argument is an SQLite
 * file; it sends its parent the port.
 */
import { createServer } from "node:http";
import { DatabaseSync } from "node:sqlite";
import { text } from "node:stream/consumers";

const [, , file = ""] = process.argv;
const database = new DatabaseSync(file);

const server = createServer(async (request, response) => {
  const statements: string[] = JSON.parse(await text(request));
  response.end(JSON.stringify(statements.map((words) => database.prepare(words).all())));
});
server.listen(0, "127.0.0.1", () => process.send?.(server.address()));
process.on("disconnect", () => process.exit());
