/** Answers calls in several ways, or not at all. */
import {
  type Call,
  leaveSignalsToParent,
  messageCodec,
  type NoCalls,
  openParentChannel,
} from "../../src/core/base/ipc.ts";

export type EchoCalls = {
  readonly echo: Call<string, string>;
  readonly refuse: Call<string, never>;
  readonly ignore: Call<undefined, void>;
  readonly standStill: Call<undefined, void>;
};

leaveSignalsToParent();
openParentChannel<EchoCalls, NoCalls, string>(
  {
    echo: (text) => text,
    refuse(text) {
      throw new Error(text);
    },
    ignore: () => new Promise<void>(() => {}),
    standStill() {
      for (;;);
    },
  },
  messageCodec,
);
process.once("disconnect", () => process.exit(7));
