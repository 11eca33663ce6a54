/** Answers to questions about changes, and the state afterwards. */
import type { Shop } from "./shop.ts";
import type { Reference } from "./tally.ts";

interface Change {
  readonly answer: Reference;
  readonly after: Reference;
}

const cheap = (shop: Shop) => [...shop.coupons()].filter(({ percent }) => percent <= 10);

/** By question. */
export const changes: Readonly<Record<string, Change>> = {
  "put-into-cart": { answer: () => 11, after: () => [[20, 8, 2]] },
  "sell-three": {
    answer: (shop) => shop.stockOf(9).north - 3,
    after: (shop) => [[shop.stockOf(9).north - 3]],
  },
  "move-stock": {
    answer: (shop) => [shop.stockOf(10).north - 5, shop.stockOf(10).south + 5],
    after: (shop) => [[shop.stockOf(10).north - 5, shop.stockOf(10).south + 5]],
  },
  "what-if": {
    answer: (shop) => [cheap(shop).length, cheap(shop).map(({ code }) => code)],
    after: (shop) => cheap(shop).length,
  },
  "add-or-change": {
    answer: () => 2,
    after: () => [
      ["C20", 50],
      ["SUMMER", 15],
    ],
  },
  "all-or-nothing": { answer: () => 2, after: () => [[3, 2]] },
};
