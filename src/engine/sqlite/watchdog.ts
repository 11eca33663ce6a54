import { writeSync } from "node:fs";
import { Socket } from "node:net";

/**
 * The thread that ends its worker when the engine is gone. The worker's own thread may be deep in
 * a statement and hear nothing for minutes; this one waits for the end of standard input, whose
 * other end the engine holds and the system closes with it, however the engine ends. Until then it
 * sends back what arrives there, as a sign of life: a process that is stopped sends nothing.
 */

const engine = new Socket({ fd: 0, readable: true, writable: false });
engine.once("close", () => process.kill(process.pid, "SIGKILL"));
engine.on("error", () => engine.destroy());
engine.on("data", (bytes: Buffer) => writeSync(1, bytes));
