import { writeSync } from "node:fs";
import { Socket } from "node:net";

/**
 * Thread that ends its worker when the engine is gone, since the main thread may be busy with a
 * statement for minutes. The system closes standard input however the engine ends. Until then, the
 * thread echoes its input as a sign of life.
 */
const engine = new Socket({ fd: 0, readable: true, writable: false });
engine.once("close", () => process.kill(process.pid, "SIGKILL"));
engine.on("error", () => engine.destroy());
engine.on("data", (bytes: Buffer) => writeSync(1, bytes));
