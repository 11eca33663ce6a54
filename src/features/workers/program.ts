import { leaveSignalsToParent } from "../../core/base/ipc.ts";

// Before the import, so that it also applies while the worker loads.
leaveSignalsToParent();
await import("./serve.ts");
