/** Caches the compiled modules of a gateway before the tests, most of which kill theirs. */
import { startGateway } from "./gateway.ts";

const undo: (() => unknown)[] = [];
const gateway = await startGateway({ teardown: (end) => undo.push(end) });
await gateway.get("/api/users", await gateway.login());
await gateway.service.stop();
for (const end of undo) await end();
