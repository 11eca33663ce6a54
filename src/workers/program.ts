/** The program of a worker. */
import { leaveSignalsToParent } from "../ipc/channel.ts";

// Also while all that a worker is made of is loaded.
leaveSignalsToParent();
await import("./serve.ts");
