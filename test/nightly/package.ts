/** In a Node without the hooks of the test runner, which break the compiler. */
import path from "node:path";
import t from "tap";
import { nodeCommand } from "../kit/node.ts";

const file = path.join(import.meta.dirname, "package/installed.ts");
t.spawn(...nodeCommand([file]), {}, "the package, installed as users install it");
