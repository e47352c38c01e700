"""Common English words of three to nine letters, for rendered words."""

from __future__ import annotations

_WORDS = """
about above across action after again against air all almost along also always amount and animal another answer
any apple area around arrive art ask autumn away baby back bad bag bakery ball bank bar basic bath beach bean
bear beauty because bed before begin behind bell below best better between big bird black blue board boat body
book border both bottle box boy bread break bridge bright bring broken brother brown build bus busy but butter
button buy cake call camera can captain car card care carry case castle cat catch centre chair change chapter
cheap check cheese chicken child choose church circle city class clean clear climb clock close cloth cloud club
coast coat coffee coin cold colour come common company contain cook cool copper copy corn corner correct cost
cotton could count country course cover cream create cross crowd cup current cut daily dance danger dark
daughter day dead deal dear decide deep degree desert design desk detail dinner direct discount distance doctor
dog dollar done door double down dream dress drink drive drop dry dust each early earth east easy eat edge
effect eight either electric else empty end energy engine enough enter equal escape even evening ever every
example exit expect express eye face fact factory fair fall family famous far farm fast father favour fear feed
feel few field fifty fight figure fill film final find fine finger fire first fish five flag flat flight floor
flower fly follow food foot for force foreign forest forget form forward found four free fresh friend front
fruit full future game garden gas gate general gentle gift girl give glass gold golden good grain grand grass
great green grey ground group grow guard guess guide gun hair half hall hand happy harbour hard harvest hat have
head health hear heart heat heavy help here high hill history hold holiday home honest honey hope horse hospital
hot hotel hour house how hundred hungry hunt hurry husband ice idea inch include industry inside interest invite
iron island join journey judge juice jump just keep key kind king kitchen know ladder lady lake lamp land
language large last late laugh law lazy lead leaf learn least leather leave left leg lemon length less lesson
let letter level library life lift light like limit line lion list listen little live local lock long look lose
loud love low lucky lunch machine mail main make man manager many map market master match material may meal mean
measure meat medicine meet member memory metal method middle mile milk mind minute mirror miss mix modern moment
money month moon more morning most mother motor mountain mouth move much museum music must nail name narrow
nation native nature near neck need needle never new news next nice night nine noise none noon north nose note
nothing notice now number nurse object ocean off offer office often oil old once one onion only open opposite
orange order other our out over own oxygen page paint pair palace paper parcel parent park part party pass past
path pay peace pen pencil people pepper perfect perhaps period person phone photo picture piece pilot pink place
plain plan plant plate play please plenty pocket point police polite pool poor popular port position post potato
pound powder power practice prepare present press price prince print private prize problem product promise
proper protect proud public pull pure purple push put quality quarter queen question quick quiet quite rabbit
race radio rail rain raise reach read ready real reason receive record red region regular remain remember rent
repair repeat reply report rest result return rice rich ride right ring rise river road rock roll roof room root
rope rose round row royal rubber rule run safe sail salad salt same sand save say scale school science sea
season seat second secret see seed sell send sense serious serve service seven shade shadow shape share sharp
she sheep sheet shelf shine ship shirt shoe shop short should shoulder shout show shut side sign silk silver
simple since sing sister sit six size skin sky sleep slow small smart smell smile smoke snow soap social soft
soil soldier some son song soon sorry sound soup south space spare speak special speed spell spend spoon sport
spread spring square stage stairs stamp stand star start station stay steam steel step still stone stop store
storm story straight strange street string strong student study sugar suit summer sun supply support sure
surface surprise sweet swim table tail take talk tall taste tax taxi teach team tell ten tennis test than thank
that theatre then there thick thin thing think third thirty this thousand thread three through throw thunder
ticket tie tiger till time tin tired today together tomorrow tonight tool tooth top total touch tour towards
towel tower town toy trade train travel tree trip trouble truck true trust try turn twelve twenty two type
umbrella uncle under until use useful usual valley value van very victory village visit voice vote wait walk
wall want war warm warning wash waste watch water wave way weak wear weather week weight welcome well west wet
what wheel when where which while white who whole why wide wife wild will win wind window wine winter wire wise
wish with without woman wonder wood wool word work world worry write wrong yard year yellow yes yet you young
your zero zone
"""

COMMON_WORDS = tuple(_WORDS.split())
