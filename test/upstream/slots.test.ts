import t from "tap";
import { Slots } from "../../src/upstream/slots.ts";

t.test("a slot goes to whoever has waited longest", async (t) => {
  const slots = new Slots(1, 2);
  t.ok(slots.tryTake());
  t.notOk(slots.tryTake());
  const order: string[] = [];
  const first = slots.wait();
  const second = slots.wait();
  void first.turn.then(() => order.push("first"));
  void second.turn.then(() => order.push("second"));
  t.ok(slots.isFull);
  slots.release();
  t.ok(await first.turn);
  slots.release();
  t.ok(await second.turn);
  t.strictSame(order, ["first", "second"]);
});

t.test("whoever leaves the line is passed over and holds nothing", async (t) => {
  const slots = new Slots(1, 2);
  slots.tryTake();
  const leaver = slots.wait();
  const stayer = slots.wait();
  leaver.leave();
  t.notOk(await leaver.turn);
  t.notOk(slots.isFull, "there is room in the line again");
  slots.release();
  t.ok(await stayer.turn);
  stayer.leave();
  t.notOk(slots.tryTake(), "leaving after the turn came gives nothing back");
  slots.release();
  t.ok(slots.tryTake());
});

t.test("without a line one is full as soon as all slots are held", async (t) => {
  const slots = new Slots(2, 0);
  t.notOk(slots.isFull);
  slots.tryTake();
  t.notOk(slots.isFull);
  slots.tryTake();
  t.ok(slots.isFull);
});
