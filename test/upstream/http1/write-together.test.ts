import { setImmediate as turn } from "node:timers/promises";
import t from "tap";
import { writeTogether } from "../../../src/upstream/http1/connection.ts";

t.test(
  "writes are made one right after the other, once all else of the turn is done",
  async (t) => {
    const order: string[] = [];
    writeTogether(() => {
      order.push("first write");
      process.nextTick(() => order.push("what follows a write"));
      writeTogether(() => order.push("write of the next turn"));
    });
    process.nextTick(() => {
      order.push("tick");
      writeTogether(() => order.push("second write"));
    });
    await turn();
    await turn();
    t.strictSame(order, [
      ...["tick", "first write", "second write", "what follows a write"],
      "write of the next turn",
    ]);
  },
);
