-- A run is written three times, when it comes, is claimed and ends, and each time it is a new version of its row. In a page that has room for as many
-- versions as rows they stay in it: less is logged, and the next one takes the room of the last but one. Pages that are there stay as they are.
ALTER TABLE runs SET (fillfactor = 50);
