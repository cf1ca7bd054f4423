import { killEverywhere } from './kill-everywhere.js';
import { startingStates } from './starting-states.js';

killEverywhere(startingStates.slice(1, 4));
