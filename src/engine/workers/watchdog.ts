/**
 * The thread that ends its worker when the engine is gone. The worker's own thread may be deep in
 * a statement and hear nothing for minutes; this one waits for the end of standard input, whose
 * other end the engine holds and the system closes with it, however the engine ends.
 */

import { Socket } from "node:net";

const engine = new Socket({ fd: 0, readable: true, writable: false });
engine.once("close", () => process.kill(process.pid, "SIGKILL"));
engine.on("error", () => engine.destroy());
engine.resume();
