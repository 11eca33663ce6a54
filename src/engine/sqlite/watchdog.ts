import { writeSync } from "node:fs";
import { Socket } from "node:net";

/**
 * Thread that ends its worker when the engine is gone. The worker's own thread may be busy with a
 * statement for minutes and notice nothing. This thread waits for the end of standard input. The
 * engine holds the other end, and the system closes it however the engine ends.
 *
 * Until then, the thread echoes its input as a sign of life. A stopped process echoes nothing.
 */

const engine = new Socket({ fd: 0, readable: true, writable: false });
engine.once("close", () => process.kill(process.pid, "SIGKILL"));
engine.on("error", () => engine.destroy());
engine.on("data", (bytes: Buffer) => writeSync(1, bytes));
